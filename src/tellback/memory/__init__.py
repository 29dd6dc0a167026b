"""What is remembered of each user: spaces, atoms, entities, recall, extraction and the working context.

`memory.Memory` is `user.memory`; `engine.MemoryEngine` holds what the handles of all users share.
Every package above it may import it: `turns`, `agent`, `specs`, `app`, `client`, `mcp`, `server`, `cli`.
"""
