"""The pages, which register themselves when they are imported."""

from tellback.console.pages import chat, conversations, data, entities, jobs, memory, routes, timeline, usage

__all__ = ["atom", "chat", "conversations", "data", "entities", "jobs", "memory", "routes", "timeline", "usage"]
