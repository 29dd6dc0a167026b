"""Session state as values, its conversion to rows, and the stores that persist it.

`session` is imported everywhere in `tellback.agent`; the server, client and wire import all three."""
