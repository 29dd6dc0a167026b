"""Prompts for understanding a message and for the reply, and the parsers of the model's answers.

`tellback.agent.agent` and `tellback.agent.runtime` import it. Nothing here calls a model."""
