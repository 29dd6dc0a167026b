"""Where a conversation goes next: choose a route and walk it.

Pure code over definitions and session values: no I/O, no model, no clock. Imported by prompts, responses and the
runtime."""
