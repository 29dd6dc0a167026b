"""The parts of an agent that an application declares: routes, states, gather schemas, guidelines, responses, tools.

The rest of `tellback.agent` imports this package; this package imports only `context` and `sessions.session` from it.
Nothing here runs a turn."""
