"""One turn of an agent at run time: the responder, the turn itself, tools of states, and the user's memory.

`tellback.agent.agent` and the server import it."""
