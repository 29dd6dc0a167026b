"""Ranking, as pure functions over arrays: no I/O, so that every store ranks alike.

`tokenizer` reads texts and questions, `index` holds a space's texts as arrays, `ranker` scores them, `dates` reads
times. Imported by `tellback.memory`, and by `tellback.agent.prompts` to choose what is relevant.
"""
