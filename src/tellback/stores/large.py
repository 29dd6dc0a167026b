"""Finding, in a space too large to be held, what is worth ranking: by a server that can search."""

from __future__ import annotations

from typing import Any

from tellback.stores import memory_rows
from tellback.stores.engine import FOREVER, Operation
from tellback.stores.ports import Search, SpaceChanges

NEIGHBOURS = 4
"""What stands around a candidate in its conversation is ranked with it."""


def find(space_id: str, search: Search, meaning: bool) -> Operation[SpaceChanges]:
    """Atoms with words of what is asked, near to it in meaning, or about what it names; and those around them.

    With ids of entities, only what is about them. Where nothing is found, the newest in the time asked for. Where also
    what is over is asked for, all that stood in the place of what was found.
    """
    values: dict[str, Any] = {
        "space_id": space_id,
        "statuses": list(search.statuses),
        "known_at": search.known_at,
        "begun_at": search.begun_at,
        "over_at": search.over_at,
        "since": search.since,
        "until": search.until,
        "importance": search.least_importance,
        "categories": None if search.categories is None else list(search.categories),
        "entity_ids": [*search.entity_ids] or None,
        "limit": search.limit,
    }
    yield "platform_snapshot", {}
    found: set[int] = set()
    entities: list[Any] = []
    if search.names:
        entities = yield "large_entities_named", {"space_id": space_id, "names": list(search.names)}
    entity_ids = [*search.entity_ids, *(row[0] for row in entities)]
    if entity_ids:
        rows = yield "large_by_entity", {**values, "entity_ids": entity_ids}
        found |= {row[0] for row in rows}
    if search.words:
        rows = yield "large_by_words", {**values, "words": " | ".join(search.words)}
        found |= {row[0] for row in rows}
    if search.vector is not None and meaning:
        numbers = memory_rows.numbers(search.vector)
        rows = yield "large_by_meaning", {**values, "embedder": search.embedder, "numbers": numbers}
        found |= {row[0] for row in rows}
    if not found and not search.entity_ids:
        rows = yield "large_by_time", values
        found |= {row[0] for row in rows}
    if search.over_at == -FOREVER and found:
        rows = yield "large_chains", {"space_id": space_id, "seqs": sorted(found)}
        found |= {row[0] for row in rows}
    around = {near for seq in found for near in range(max(1, seq - NEIGHBOURS), seq + NEIGHBOURS + 1)}
    wanted = {"space_id": space_id, "seqs": sorted(around)}
    atoms = yield "large_atoms", wanted
    closings = yield "large_closings", wanted
    vectors = yield "large_vectors", {**wanted, "embedder": search.embedder}
    named = [memory_rows.entity(row) for row in entities]
    return SpaceChanges(0, len(atoms), *_renumbered(atoms, closings, vectors), named)


def _renumbered(atoms: list[Any], closings: list[Any], vectors: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Rows as those of a space that holds nothing else."""
    places = {row[memory_rows.SEQ]: place for place, row in enumerate(atoms, 1)}
    return (
        [(*tuple(row)[: memory_rows.SEQ], places[row[memory_rows.SEQ]]) for row in atoms],
        [(places[seq], known_at, valid_to) for seq, known_at, valid_to in closings if seq in places],
        [(places[seq], vector) for seq, vector in vectors if seq in places],
    )
