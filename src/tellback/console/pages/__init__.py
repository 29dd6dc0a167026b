"""The pages of the console, one module each. They register themselves when they are imported.

Only `tellback.console.app` imports this package.
"""

from tellback.console.pages import chat, conversations, data, entities, jobs, memory, routes, timeline, usage

__all__ = ["chat", "conversations", "data", "entities", "jobs", "memory", "routes", "timeline", "usage"]
