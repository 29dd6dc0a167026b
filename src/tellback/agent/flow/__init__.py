"""Choose the next route and state of a conversation.

Pure code over definitions and session values: no I/O, no model, no clock. Prompts, responses and the runtime import
it."""
