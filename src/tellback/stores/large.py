"""Finding, in a space too large to be held, what is worth ranking: by a server that can search."""

from __future__ import annotations

from typing import Any

from tellback.stores import memory_rows
from tellback.stores.engine import UNBOUNDED, Operation
from tellback.stores.ports import SpaceChanges, SpaceSearch

NEIGHBOUR_COUNT = 4
"""What stands around a candidate in its conversation is ranked with it."""


def search_space(space_id: str, search: SpaceSearch, by_vector: bool) -> Operation[SpaceChanges]:
    """Atoms with words of what is asked, near to it in meaning, or about what it names; and those around them.

    With ids of entities, only what is about them. Where nothing is found, the newest in the time asked for. Where also
    what is over is asked for, all that stood in the place of what was found.
    """
    values: dict[str, Any] = {
        "space_id": space_id,
        "statuses": list(search.statuses),
        "known_at": search.known_at,
        "begun_at": search.started_by,
        "over_at": search.ends_after,
        "since": search.since,
        "until": search.until,
        "importance": search.min_importance,
        "categories": None if search.categories is None else list(search.categories),
        "entity_ids": [*search.entity_ids] or None,
        "limit": search.limit,
    }
    yield "platform_snapshot", {}
    seqs: set[int] = set()
    entities: list[Any] = []
    if search.names:
        entities = yield "large_entities_named", {"space_id": space_id, "names": list(search.names)}
    entity_ids = [*search.entity_ids, *(row[0] for row in entities)]
    if entity_ids:
        matches = yield "large_by_entity", {**values, "entity_ids": entity_ids}
        seqs |= {row[0] for row in matches}
    if search.words:
        matches = yield "large_by_words", {**values, "words": " | ".join(search.words)}
        seqs |= {row[0] for row in matches}
    if search.vector is not None and by_vector:
        numbers = memory_rows.vector_to_floats(search.vector)
        matches = yield "large_by_meaning", {**values, "embedder": search.embedder, "numbers": numbers}
        seqs |= {row[0] for row in matches}
    if not seqs and not search.entity_ids:
        matches = yield "large_by_time", values
        seqs |= {row[0] for row in matches}
    if search.ends_after == -UNBOUNDED and seqs:
        matches = yield "large_chains", {"space_id": space_id, "seqs": sorted(seqs)}
        seqs |= {row[0] for row in matches}
    nearby = {
        neighbour for seq in seqs for neighbour in range(max(1, seq - NEIGHBOUR_COUNT), seq + NEIGHBOUR_COUNT + 1)
    }
    atom_range = {"space_id": space_id, "seqs": sorted(nearby)}
    atoms = yield "large_atoms", atom_range
    closings = yield "large_closings", atom_range
    vectors = yield "large_vectors", {**atom_range, "embedder": search.embedder}
    named_entities = [memory_rows.entity_from_row(row) for row in entities]
    return SpaceChanges(0, len(atoms), *_renumber(atoms, closings, vectors), named_entities)


def _renumber(atoms: list[Any], closings: list[Any], vectors: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Rows as those of a space that holds nothing else."""
    new_seqs = {row[memory_rows.SEQ]: new_seq for new_seq, row in enumerate(atoms, 1)}
    return (
        [(*tuple(row)[: memory_rows.SEQ], new_seqs[row[memory_rows.SEQ]]) for row in atoms],
        [(new_seqs[seq], known_at, valid_to) for seq, known_at, valid_to in closings if seq in new_seqs],
        [(new_seqs[seq], vector) for seq, vector in vectors if seq in new_seqs],
    )
