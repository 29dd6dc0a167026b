"""What a model is asked: prompts for understanding a message and for the reply, and the parsed answer.

Imported by `tellback.agent.agent` and `tellback.agent.runtime`. Nothing here calls a model."""
