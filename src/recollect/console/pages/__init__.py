"""The pages, which register themselves when they are imported."""

from recollect.console.pages import atom, chat, data, entities, jobs, memory, timeline, usage

__all__ = ["atom", "chat", "data", "entities", "jobs", "memory", "timeline", "usage"]
