"""Session state as values, its conversion to database rows, and the stores that persist it.

All of `tellback.agent` imports `session`; the server, the client and the wire format import all three modules."""
