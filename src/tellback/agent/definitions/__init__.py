"""What an application declares of an agent: routes, states, gather schemas, guidelines, canned responses, tools.

Imported by the rest of `tellback.agent`; imports only `tellback.agent.context` and `tellback.agent.sessions.session` from it.
Nothing here runs a turn."""
