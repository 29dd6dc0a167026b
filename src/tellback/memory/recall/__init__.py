"""Ranking, as pure functions over arrays: no I/O, so that every store ranks alike.

Tokenizer, postings, index, similarity, ranker, questions and `dates`.
Imported by `tellback.memory`, and by `tellback.agent.prompts` to choose what is relevant.
"""
