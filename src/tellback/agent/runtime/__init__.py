"""One turn of an agent at run time: the responder, the turn itself, tools of states, and the user's memory.

Imported by `tellback.agent.agent` and by the server."""
