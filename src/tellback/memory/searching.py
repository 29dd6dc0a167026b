"""Finding entities by what one remembers of their names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from difflib import SequenceMatcher

from tellback.types.memory import Entity
from tellback.types.names import fold_name

MAX_INLINE_ENTITIES = 200
MIN_NAME_SIMILARITY = 0.75
"""Names that are this much alike are taken for one another's misspelling."""


async def rank_entities(entities: Sequence[Entity], query: str) -> list[Entity]:
    """Those that match, the best first: the same name, its beginning, its words, a part of it, the description, a slip.

    Among equals, those most spoken of come first. Many are compared in a thread, so that nobody else has to wait.
    """
    if len(entities) <= MAX_INLINE_ENTITIES:
        return _rank_entities(entities, query)
    return await asyncio.to_thread(_rank_entities, entities, query)


def _rank_entities(entities: Sequence[Entity], query: str) -> list[Entity]:
    folded_query = fold_name(query)
    ranked = [(_match_score(entity, folded_query), entity) for entity in entities]
    matching = [pair for pair in ranked if pair[0] > 0]
    matching.sort(key=lambda pair: (-pair[0], -pair[1].atom_count, pair[1].id))
    return [entity for _, entity in matching]


def _match_score(entity: Entity, query: str) -> int:
    if not query:
        return 1
    names = [fold_name(name) for name in (entity.canonical_name, *entity.aliases)]
    words = set(query.split())
    if query in names:
        return 6
    if any(name.startswith(query) for name in names):
        return 5
    if any(words <= set(name.split()) for name in names):
        return 4
    if any(query in name for name in names):
        return 3
    if entity.description is not None and query in fold_name(entity.description):
        return 2
    return int(any(_is_misspelling(name, query) for name in names))


def _is_misspelling(name: str, query: str) -> bool:
    matcher = SequenceMatcher(None, name, query)
    return (
        matcher.real_quick_ratio() >= MIN_NAME_SIMILARITY
        and matcher.quick_ratio() >= MIN_NAME_SIMILARITY
        and matcher.ratio() >= MIN_NAME_SIMILARITY
    )
