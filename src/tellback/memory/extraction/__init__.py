"""Extraction: conversations become memories.

Extractors, their prompts and the parser of their answers, the service that runs jobs, and `reconciliation`.
Imported by `tellback.memory`, and for its public values by `app`, `cli` and `server`.
"""
