"""Finding entities by what one remembers of their names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from difflib import SequenceMatcher

from tellback.types.memory import Entity
from tellback.types.names import folded

INLINE = 200
LIKENESS = 0.75
"""Names that are this much alike are taken for one another's misspelling."""


async def best_entities(entities: Sequence[Entity], query: str) -> list[Entity]:
    """Those that match, the best first: the same name, its beginning, its words, a part of it, the description, a slip.

    Among equals, those most spoken of come first. Many are compared in a thread, so that nobody else has to wait.
    """
    if len(entities) <= INLINE:
        return _best(entities, query)
    return await asyncio.to_thread(_best, entities, query)


def _best(entities: Sequence[Entity], query: str) -> list[Entity]:
    asked = folded(query)
    ranked = [(_match(entity, asked), entity) for entity in entities]
    matching = [pair for pair in ranked if pair[0] > 0]
    matching.sort(key=lambda pair: (-pair[0], -pair[1].atom_count, pair[1].id))
    return [entity for _, entity in matching]


def _match(entity: Entity, asked: str) -> int:
    if not asked:
        return 1
    names = [folded(name) for name in (entity.canonical_name, *entity.aliases)]
    words = set(asked.split())
    if asked in names:
        return 6
    if any(name.startswith(asked) for name in names):
        return 5
    if any(words <= set(name.split()) for name in names):
        return 4
    if any(asked in name for name in names):
        return 3
    if entity.description is not None and asked in folded(entity.description):
        return 2
    return int(any(_is_slip(name, asked) for name in names))


def _is_slip(name: str, asked: str) -> bool:
    alike = SequenceMatcher(None, name, asked)
    return alike.real_quick_ratio() >= LIKENESS and alike.quick_ratio() >= LIKENESS and alike.ratio() >= LIKENESS
