"""Ranking as pure functions over arrays. It does no I/O, so recall ranks the same with every store.

`tokenizer` parses texts and questions, `index` stores the texts of a space as arrays, `ranker` scores them, and `dates`
parses times. `tellback.memory` imports this package, and so does `tellback.agent.prompts`, to choose relevant texts.
"""
