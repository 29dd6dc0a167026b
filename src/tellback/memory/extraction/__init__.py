"""Extraction: conversations become memories.

The package has the extractors, their prompts, the parser of model output, the service that runs jobs, and
`reconciliation`. `tellback.memory` imports it; `app`, `cli` and `server` import its public values.
"""
