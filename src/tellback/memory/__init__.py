"""The memory of each user: spaces, atoms, entities, recall, extraction and the working context.

`memory.Memory` is `user.memory`; `engine.MemoryEngine` is shared by the handles of all users. Every package above this
one may import it: `turns`, `agent`, `specs`, `app`, `client`, `mcp`, `server`, `cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.exports import lazy_exports

if TYPE_CHECKING:
    from tellback.memory.extraction.extractors import LlmExtractor as LlmExtractor
    from tellback.memory.extraction.service import ReplayProgress as ReplayProgress
    from tellback.memory.extraction.service import ReplayReport as ReplayReport
    from tellback.memory.extraction.values import ExtractedEntity as ExtractedEntity
    from tellback.memory.extraction.values import ExtractedFact as ExtractedFact
    from tellback.memory.extraction.values import Extraction as Extraction
    from tellback.memory.extraction.values import Window as Window
    from tellback.memory.patterns import PatternMining as PatternMining
    from tellback.memory.tools import Forget as Forget
    from tellback.memory.tools import RecallByEntity as RecallByEntity
    from tellback.memory.tools import RecallByTopic as RecallByTopic
    from tellback.memory.tools import RecallTimeline as RecallTimeline
    from tellback.memory.tools import Remember as Remember
    from tellback.memory.tools import memory_tools as memory_tools
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tellback.memory.extraction.extractors": "LlmExtractor",
            "tellback.memory.extraction.service": "ReplayProgress ReplayReport",
            "tellback.memory.extraction.values": "ExtractedEntity ExtractedFact Extraction Window",
            "tellback.memory.patterns": "PatternMining",
            "tellback.memory.tools": "Forget memory_tools RecallByEntity RecallByTopic RecallTimeline Remember",
        },
    )
