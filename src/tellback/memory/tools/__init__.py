"""Tools by which a model looks into a memory during a turn and, if you let it, writes into it.

Each is made for one space of one user: the model chooses what to ask, never whose memory it asks.
"""

from __future__ import annotations

from tellback.memory.tools.base import MemoryLike
from tellback.memory.tools.recall import RecallByEntity, RecallByTopic, RecallTimeline
from tellback.memory.tools.write import Forget, Remember
from tellback.tools import Tool

__all__ = ["Forget", "RecallByEntity", "RecallByTopic", "RecallTimeline", "Remember", "memory_tools"]


def memory_tools(memory: MemoryLike, space_id: str, write: bool = False) -> list[Tool]:
    """The three recall tools for a space and, with `write`, those that remember and forget.

    >>> from tellback import Tellback
    >>> maya = Tellback(":memory:").user("maya")
    >>> [tool.name for tool in memory_tools(maya, "ms_1", write=True)]
    ['recall_by_topic', 'recall_by_entity', 'recall_timeline', 'remember', 'forget']
    """
    found: list[Tool] = [kind(memory, space_id) for kind in (RecallByTopic, RecallByEntity, RecallTimeline)]
    if write:
        found += [Remember(memory, space_id), Forget(memory, space_id)]
    return found
