"""The pages of the console, one module each. A module registers its page when it is imported.

Only `tellback.console.app` imports this package.
"""

from tellback.console.pages import chat, conversations, data, entities, jobs, memory, routes, timeline, usage

__all__ = ["chat", "conversations", "data", "entities", "jobs", "memory", "routes", "timeline", "usage"]
