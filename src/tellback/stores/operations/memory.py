"""Memory in SQL: `MemoryStore` on any engine, with the reconciliation of a space and the search of large ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from tellback.errors import NotFoundError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation, event_statement, reads
from tellback.stores.operations import atoms, entities, jobs
from tellback.stores.operations.atoms import SqlAtoms
from tellback.stores.operations.entities import SqlEntities
from tellback.stores.ports.jobs import JobEnd
from tellback.stores.ports.memory import (
    AddedCitation,
    AtomDraft,
    KnownAtom,
    Reconciliation,
    Replacement,
    SpaceChanges,
    SpaceSearch,
)
from tellback.types.access import Scope
from tellback.types.ids import from_micros, to_micros
from tellback.types.jsontext import dump_stored_json
from tellback.types.memory import Atom, Citation

NEIGHBOUR_COUNT = 4
"""What stands around a candidate in its conversation is ranked with it."""


class SpaceChangedError(Exception):
    """Someone was faster; what was begun is undone. It never leaves the store."""


def load_known_atoms(space_id: str, slots: Sequence[str], conversation_id: str | None) -> Operation[list[KnownAtom]]:
    """What a space has about some slots, and what cites a conversation, whatever became of it."""
    yield from atoms.space_version(space_id)
    found = []
    for slot in dict.fromkeys(slots):
        found += yield "atoms_of_slot", {"space_id": space_id, "slot": slot}
    if conversation_id is not None:
        values = {"space_id": space_id, "conversation_id": conversation_id, "mention": f'%"{conversation_id}"%'}
        # The database looks for the id as it looks for any words: it may find a little too much.
        mentions = yield "atoms_of_conversation", values
        found += [row for row in mentions if _cites(rows.ATOM.read(row), conversation_id)]
    by_seq = {row["seq"]: KnownAtom(rows.ATOM.read(row), row["slot"], row["value"]) for row in found}
    # What took the place of one of them by hand has no slot of its own.
    ids = {each.atom.id for each in by_seq.values()}
    successors = [each.atom.superseded_by for each in by_seq.values()]
    while successors:
        id = successors.pop()
        if id is not None and id not in ids:
            ids.add(id)
            [row] = yield "atom_get", {"id": id}
            by_seq[row["seq"]] = KnownAtom(rows.ATOM.read(row))
            successors.append(row["superseded_by"])
    return (yield from _add_message_dates([by_seq[seq] for seq in sorted(by_seq)]))


def _add_message_dates(found: Sequence[KnownAtom]) -> Operation[list[KnownAtom]]:
    """Atoms with the dates of what they cite."""
    cited_ids = [[id for source in each.atom.citations for id in source.message_ids] for each in found]
    ids = sorted({id for each in cited_ids for id in each})
    message_rows = (yield "message_dates_of", {"ids": dump_stored_json(ids)}) if ids else ()
    dates = {row["id"]: from_micros(row["created_at"]) for row in message_rows}
    return [
        replace(each, message_dates=tuple(sorted({dates[id] for id in ids_of_atom if id in dates})))
        for each, ids_of_atom in zip(found, cited_ids, strict=True)
    ]


def _cites(atom: Atom, conversation_id: str) -> bool:
    return any(source.conversation_id == conversation_id for source in atom.citations)


def reconcile(
    scope: Scope,
    space_id: str,
    changes: Reconciliation,
    expected_version: int,
    end: JobEnd | None,
    now: int,
    is_searchable: bool,
) -> Operation[list[Atom] | None]:
    """Make every change, or none if the space is not as it was when they were thought of."""
    if end is not None:
        yield from jobs.hold_job(end)  # before the space: an erasure takes jobs first, too
    if (yield from atoms.space_version(space_id)).version != expected_version:
        return None
    # Touching it locks it: nobody else changes the space from here on, but someone may have since we looked.
    if (yield from atoms.touch_space(space_id, now)).version != expected_version + 1:
        raise SpaceChangedError(space_id)
    for entity in changes.entities:
        yield from entities.create_entity(space_id, entity, now)
    for entity_id, names in changes.aliases.items():
        yield from entities.resolve_entities(space_id, [entity_id])
        yield from entities.add_aliases(entity_id, names, now)
    changed: list[Atom] = []
    for change in changes.changes:
        if isinstance(change, AtomDraft):
            changed += yield from atoms.add_atoms(scope, space_id, [change], now, is_searchable)
        elif isinstance(change, Replacement):
            yield from _load_atom_row(space_id, change.old_id)
            changed.append((yield from atoms.supersede_atom(scope, change.old_id, change.draft, now, is_searchable)))
        else:
            changed.append((yield from _add_citation(space_id, change, now)))
    if end is not None:
        yield from jobs.finish_job(end, now)
    return changed


def _add_citation(space_id: str, added: AddedCitation, now: int) -> Operation[Atom]:
    """Say where an atom was said again."""
    row = yield from _load_atom_row(space_id, added.atom_id)
    atom = rows.ATOM.read(row)
    sources = [*_merge_citation(atom.citations, added.citation)]
    if sources == [*atom.citations]:
        return atom
    space = yield from atoms.touch_space(space_id, now)
    first: Citation | None = None
    if atom.source_conversation_id is not None or not atom.source_message_ids:
        first, *sources = sources  # or it cites messages of no known conversation, which stay first
    values = {
        "space_id": space_id,
        "seq": row["seq"],
        "source_conversation_id": None if first is None else first.conversation_id,
        "source_message_ids": dump_stored_json(atom.source_message_ids if first is None else first.message_ids),
        "other_sources": rows.dump_citations(sources),
        "version": space.version,
        "now": now,
    }
    yield "atom_set_sources", values
    data = {"space_id": space_id, "conversation_id": added.citation.conversation_id}
    yield event_statement("atom.cited", atom.id, data, now)
    [row] = yield "atom_get", {"id": atom.id}
    return rows.ATOM.read(row)


def _load_atom_row(space_id: str, atom_id: str) -> Operation[rows.Row]:
    """The row of an atom of this space: those of others are not to be changed by the way."""
    found = yield "atom_get", {"id": atom_id}
    if not found or found[0]["memory_space_id"] != space_id:
        raise NotFoundError("atom", atom_id)
    row: rows.Row = found[0]
    return row


def _merge_citation(sources: Sequence[Citation], added: Citation) -> tuple[Citation, ...]:
    """Citations with one more, each conversation once.

    >>> _merge_citation([Citation("a", ("1",))], Citation("a", ("1", "2")))
    (Citation(conversation_id='a', message_ids=('1', '2')),)
    """
    merged: dict[str, dict[str, None]] = {}
    for source in (*sources, added):
        merged.setdefault(source.conversation_id, {}).update(dict.fromkeys(source.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in merged.items())


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
        entities = yield "search_entities_named", {"space_id": space_id, "names": list(search.names)}
    entity_ids = [*search.entity_ids, *(row["id"] for row in entities)]
    if entity_ids:
        matches = yield "search_by_entity", {**values, "entity_ids": entity_ids}
        seqs |= {row["seq"] for row in matches}
    if search.words:
        matches = yield "search_by_text", {**values, "words": " | ".join(search.words)}
        seqs |= {row["seq"] for row in matches}
    if search.vector is not None and by_vector:
        numbers = rows.vector_to_floats(search.vector)
        matches = yield "search_by_vector", {**values, "embedder": search.embedder, "numbers": numbers}
        seqs |= {row["seq"] for row in matches}
    if not seqs and not search.entity_ids:
        matches = yield "search_by_time", values
        seqs |= {row["seq"] for row in matches}
    if search.ends_after == -UNBOUNDED and seqs:
        matches = yield "search_chains", {"space_id": space_id, "seqs": sorted(seqs)}
        seqs |= {row["seq"] for row in matches}
    nearby = {
        neighbour for seq in seqs for neighbour in range(max(1, seq - NEIGHBOUR_COUNT), seq + NEIGHBOUR_COUNT + 1)
    }
    atom_range = {"space_id": space_id, "seqs": sorted(nearby)}
    atoms = yield "search_atoms", atom_range
    validity_ends = yield "search_validity_ends", atom_range
    vectors = yield "search_vectors", {**atom_range, "embedder": search.embedder}
    named_entities = rows.ENTITY.read_all(entities)
    return SpaceChanges(0, len(atoms), *_renumber(atoms, validity_ends, vectors), named_entities)


def _renumber(atoms: list[Any], validity_ends: list[Any], vectors: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Rows as those of a space that holds nothing else."""
    new_seqs = {row["seq"]: new_seq for new_seq, row in enumerate(atoms, 1)}
    return (
        [{**row, "seq": new_seqs[row["seq"]]} for row in atoms],
        [(new_seqs[seq], known_at, valid_to) for seq, known_at, valid_to in validity_ends if seq in new_seqs],
        [(new_seqs[seq], vector) for seq, vector in vectors if seq in new_seqs],
    )


class SqlMemoryStore(SqlAtoms, SqlEntities):
    """`MemoryStore` on an engine."""

    @property
    def can_search(self) -> bool:
        """Whether the engine is a server that can search."""
        return self._is_searchable

    @reads
    def known_atoms(
        self, scope: Scope, space_id: str, *, slots: Sequence[str], conversation_id: str | None
    ) -> Operation[list[KnownAtom]]:
        return (yield from load_known_atoms(space_id, slots, conversation_id))

    async def reconcile(
        self,
        scope: Scope,
        space_id: str,
        changes: Reconciliation,
        *,
        expected_version: int,
        end: JobEnd | None,
        now: datetime,
    ) -> list[Atom] | None:
        operation = partial(
            reconcile, scope, space_id, changes, expected_version, end, to_micros(now), self._is_searchable
        )
        try:
            return await self._engine.write(scope, operation)
        except SpaceChangedError:
            return None

    @reads
    def search_atoms(self, scope: Scope, space_id: str, search: SpaceSearch) -> Operation[SpaceChanges]:
        return (yield from search_space(space_id, search, self._engine.search == "meaning"))

    @reads
    def all_spaces(
        self, *, after: str, limit: int, changed_since: datetime | None = None
    ) -> Operation[list[tuple[Scope, str]]]:
        since = -UNBOUNDED if changed_since is None else to_micros(changed_since)
        return rows.scoped_ids((yield "platform_spaces", {"after": after, "limit": limit, "since": since}))
