"""What an application declares of an agent: routes, states, gather schemas, guidelines, canned responses, tools.

Imported by the rest of `tellback.agent`; of that it imports only `context` and `sessions.session`. Nothing here runs a
turn."""
