"""Memory in SQL: spaces, atoms and entities, the reconciliation of a space, and the search of large spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any

from tellback.errors import NotFoundError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation, StorePart, event_statement, reads, reads_briefly, writes
from tellback.stores.operations.atoms import (
    AtomWriter,
    SpaceVersion,
    add_aliases,
    create_entity,
    create_space,
    get_atom,
    get_entity,
    get_space,
    list_spaces,
    merge_entities,
    resolve_entities,
    set_atom_status,
    touch_space,
    vector_statement,
)
from tellback.stores.operations.jobs import finish_job, hold_job
from tellback.stores.values import (
    AddedCitation,
    AtomDraft,
    AtomFilter,
    EntityDraft,
    JobEnd,
    KnownAtom,
    Reconciliation,
    Replacement,
    SpaceChanges,
    SpaceSearch,
)
from tellback.types.access import Scope
from tellback.types.ids import fold_name, from_micros, to_micros
from tellback.types.jsontext import dump_stored_json
from tellback.types.memory import Atom, AtomStatus, Citation, Entity, EntityType, MemorySpace

NEIGHBOUR_COUNT = 4
"""How many messages around a candidate in its conversation are ranked with it."""


class MemoryStore(StorePart):
    """Spaces, atoms and entities, in scope. Each change writes its event in the same transaction.

    - A deleted space is unknown, and so are its contents.
    - `add` stores all drafts or none, in the order of commits, with consecutive `seq`s from 1 on in each space. A draft
      whose origin the space already has is not stored again: the stored atom replaces it. Raises `NotFoundError` for
      the space or an entity. `atoms_by_origin` returns the stored atoms of some origins.
    - An atom is valid at (valid_at, known_at) if it was created by `known_at`, starts by `valid_at`, and has no end
      known by then that is at or before `valid_at`. `supersede` adds the new atom and ends all atoms before it in the
      chain at its `valid_from`, as known from `now` on: once any atom of a chain has started, exactly one is valid.
      Raises `AtomSupersededError` if the atom was already superseded.
    - `set_status` to the current status changes nothing. A deleted atom cannot be restored: `NotFoundError`. It leaves
      its chain: atoms it ended now end where their next ones start, and the new last atom of the chain is current
      again.
    - `known_atoms` returns a space's atoms with some slots, their successors, and all atoms that cite a conversation,
      whatever their status. `reconcile` changes a space in one transaction and, with `end`, also finishes the job that
      requested it. If the space's version is not the expected one, it returns None and changes nothing. It raises
      `JobLostError` if that attempt no longer runs the job. A citation that the atom already has changes nothing. Ids
      that are not in that space raise `NotFoundError`.
    - `entities` returns unmerged entities, oldest first: at most `limit`, after the id `after`.
    - `merge` moves the alias's names and atoms to the canonical entity, after both are resolved to the entities they
      were merged into. Merging again changes nothing.
    - `version` counts a space's changes. `changes` returns changes after a version (all after -1); changes made while
      it reads may appear twice. A space that ever had more than `max_atoms` atoms is not read: only the numbers are
      returned.
    - `search_atoms` returns the part of a large space that is worth ranking, numbered like a small space. `can_search`
      returns whether the store supports it; if not, spaces of any size are loaded.
    - `atoms_without_vector` returns atoms (seq, text) without a vector of that embedder, newest first, before a seq.
      `save_vectors` replaces that embedder's vectors of these atoms, and keeps other embedders' vectors until
      `delete_other_vectors` deletes all but one embedder's in a space.
    """

    @property
    def can_search(self) -> bool:
        """Whether the engine can search in the database."""
        return self._engine.search != "none"

    @writes
    def create_space(self, scope: Scope, space: MemorySpace, *, reuse_existing: bool = False) -> Operation[MemorySpace]:
        return create_space(rows.row_values(space, now=to_micros(space.created_at)), reuse_existing)

    @reads
    def space(self, scope: Scope, id: str) -> Operation[MemorySpace | None]:
        return get_space(id)

    @reads
    def spaces(self, scope: Scope, *, name: str | None = None) -> Operation[list[MemorySpace]]:
        return list_spaces(name)

    @writes
    def delete_space(self, scope: Scope, id: str, *, now: datetime) -> Operation[None]:
        if not (yield "space_delete", {"id": id, "now": to_micros(now)}):
            raise NotFoundError("space", id)
        yield event_statement("space.deleted", id, {}, to_micros(now))

    @writes
    def add(self, scope: Scope, space_id: str, drafts: Sequence[AtomDraft], *, now: datetime) -> Operation[list[Atom]]:
        return self._atom_writer(scope, now).add(space_id, drafts)

    @reads
    def atoms_by_origin(self, scope: Scope, space_id: str, origins: Sequence[str]) -> Operation[dict[str, Atom]]:
        yield from _space_version(space_id)
        by_origin: dict[str, Atom] = {}
        for origin in origins:
            stored = yield "atom_by_origin", {"space_id": space_id, "origin": origin}
            if stored:
                by_origin[origin] = rows.ATOM.read(stored[0])
        return by_origin

    @reads
    def atom(self, scope: Scope, id: str) -> Operation[Atom | None]:
        return get_atom(id)

    @reads
    def atoms(self, scope: Scope, space_id: str, atom_filter: AtomFilter) -> Operation[list[Atom]]:
        yield from _space_version(space_id)
        before = UNBOUNDED
        if atom_filter.before is not None:
            found = yield "atom_get", {"id": atom_filter.before}
            if not found or found[0]["memory_space_id"] != space_id:
                raise NotFoundError("atom", atom_filter.before)
            before = found[0]["seq"]
        values = {
            "space_id": space_id,
            "status": atom_filter.status.value,
            "valid_at": to_micros(atom_filter.valid_at),
            "begun_at": to_micros(atom_filter.valid_at) if atom_filter.must_have_started else UNBOUNDED,
            "known_at": UNBOUNDED if atom_filter.known_at is None else to_micros(atom_filter.known_at),
            "before": before,
            "limit": UNBOUNDED if atom_filter.limit is None else atom_filter.limit,
            "kind": None if atom_filter.kind is None else atom_filter.kind.value,
        }
        if not atom_filter.categories:
            found = yield "atom_list", values
        else:
            found = []
            for category in atom_filter.categories:
                found += yield "atom_list_in_category", {**values, "category": category}
            found.sort(key=lambda row: -row["seq"])
            found = found[: atom_filter.limit]
        return rows.ATOM.read_all(found)

    @writes
    def supersede(self, scope: Scope, old_id: str, draft: AtomDraft, *, now: datetime) -> Operation[Atom]:
        return self._atom_writer(scope, now).supersede(old_id, draft)

    def _atom_writer(self, scope: Scope, now: datetime) -> AtomWriter:
        return AtomWriter(scope, to_micros(now), self.can_search)

    @reads
    def known_atoms(
        self, scope: Scope, space_id: str, *, slots: Sequence[str], conversation_id: str | None
    ) -> Operation[list[KnownAtom]]:
        yield from _space_version(space_id)
        found = []
        for slot in dict.fromkeys(slots):
            found += yield "atoms_of_slot", {"space_id": space_id, "slot": slot}
        if conversation_id is not None:
            values = {"space_id": space_id, "conversation_id": conversation_id, "mention": f'%"{conversation_id}"%'}
            # The database searches for the id as plain text, so it may find atoms that do not cite the conversation.
            mentions = yield "atoms_of_conversation", values
            for row in mentions:
                if any(source.conversation_id == conversation_id for source in rows.ATOM.read(row).citations):
                    found.append(row)
        by_seq = {row["seq"]: KnownAtom(rows.ATOM.read(row), row["slot"], row["value"]) for row in found}
        # Successors that were added manually have no slot, so they are loaded by id.
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

    @writes
    def reconcile(
        self,
        scope: Scope,
        space_id: str,
        changes: Reconciliation,
        *,
        expected_version: int,
        end: JobEnd | None,
        now: datetime,
    ) -> Operation[list[Atom] | None]:
        writer, moment = self._atom_writer(scope, now), to_micros(now)
        if end is not None:
            yield from hold_job(end)  # lock the job before the space, as an erasure does
        # The space is locked: no other transaction changes it from here on.
        if (yield from _space_version(space_id, "space_lock")).version != expected_version:
            return None
        yield from touch_space(space_id, moment)
        for entity in changes.entities:
            yield from create_entity(space_id, entity, moment)
        for entity_id, names in changes.aliases.items():
            yield from resolve_entities(space_id, [entity_id])
            yield from add_aliases(entity_id, names, moment)
        changed: list[Atom] = []
        for change in changes.changes:
            if isinstance(change, AtomDraft):
                changed += yield from writer.add(space_id, [change])
            elif isinstance(change, Replacement):
                yield from _load_atom_row(space_id, change.old_id)
                changed.append((yield from writer.supersede(change.old_id, change.draft)))
            else:
                changed.append((yield from _add_citation(space_id, change, moment)))
        if end is not None:
            yield from finish_job(end, moment)
        return changed

    @writes
    def set_status(self, scope: Scope, id: str, status: AtomStatus, *, now: datetime) -> Operation[Atom]:
        return set_atom_status(id, status, to_micros(now))

    @writes
    def create_entity(self, scope: Scope, space_id: str, draft: EntityDraft, *, now: datetime) -> Operation[Entity]:
        return create_entity(space_id, draft, to_micros(now))

    @reads
    def entity(self, scope: Scope, id: str) -> Operation[Entity | None]:
        return get_entity(id)

    @reads
    def entities(
        self,
        scope: Scope,
        space_id: str,
        *,
        type: EntityType | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Operation[list[Entity]]:
        yield from _space_version(space_id)
        filters = {"type": None if type is None else type.value, "after": after or ""}
        values = {"space_id": space_id, "limit": UNBOUNDED if limit is None else limit, **filters}
        return rows.ENTITY.read_all((yield "entity_list", values))

    @reads
    def find_entities(
        self, scope: Scope, space_id: str, name: str, *, type: EntityType | None = None
    ) -> Operation[list[Entity]]:
        yield from _space_version(space_id)
        key = fold_name(name)
        values = {"space_id": space_id, "name": key, "type": None if type is None else type.value}
        entities = rows.ENTITY.read_all((yield "entities_by_name", values))
        return sorted(entities, key=lambda entity: (fold_name(entity.canonical_name) != key, entity.id))

    @writes
    def merge(self, scope: Scope, canonical_id: str, alias_id: str, *, now: datetime) -> Operation[Entity]:
        return merge_entities(canonical_id, alias_id, to_micros(now))

    @reads_briefly
    def version(self, scope: Scope, space_id: str) -> Operation[int]:
        return (yield from _space_version(space_id)).version

    @reads
    def changes(
        self, scope: Scope, space_id: str, *, after: int, embedder: str, max_atoms: int | None = None
    ) -> Operation[SpaceChanges]:
        # Read one snapshot: an atom's end without its successor would hide the whole chain.
        yield "platform_snapshot", {}
        current = yield from _space_version(space_id)
        if max_atoms is not None and current.last_seq > max_atoms:
            return SpaceChanges(current.version, current.last_seq)
        values = {"space_id": space_id, "after": after}
        atoms = yield ("atoms_all" if after < 0 else "atoms_changed"), values
        validity_ends = yield ("validity_ends_all" if after < 0 else "validity_ends_changed"), values
        vectors = yield "vectors_changed", {**values, "embedder": embedder}
        found = yield "entities_changed", values
        entities = sorted(rows.ENTITY.read_all(found), key=attrgetter("id"))
        sorted_atoms = sorted(atoms, key=itemgetter("seq"))
        return SpaceChanges(current.version, current.last_seq, sorted_atoms, validity_ends, vectors, entities)

    @reads
    def search_atoms(self, scope: Scope, space_id: str, search: SpaceSearch) -> Operation[SpaceChanges]:
        """Find atoms with words of the query, near its vector, or about its entities, and the atoms around them.

        With entity ids, find only atoms about these. If nothing matches, return the newest atoms in the time range. If
        ended atoms are included, also return the chains of the atoms found.
        """
        values = {**asdict(search), "space_id": space_id, "entity_ids": search.entity_ids or None}
        yield "platform_snapshot", {}
        seqs: set[int] = set()
        entities: list[Entity] = []
        if search.names:
            entities = rows.ENTITY.read_all((yield "search_entities_named", values))
        entity_ids = [*search.entity_ids, *(entity.id for entity in entities)]
        if entity_ids:
            seqs |= yield from _select_seqs("search_by_entity", {**values, "entity_ids": entity_ids})
        if search.words:
            seqs |= yield from _select_seqs("search_by_text", {**values, "words": " | ".join(search.words)})
        if search.vector is not None and self._engine.search == "meaning":
            numbers = rows.vector_to_floats(search.vector)
            seqs |= yield from _select_seqs("search_by_vector", {**values, "numbers": numbers})
        if not seqs and not search.entity_ids:
            seqs = yield from _select_seqs("search_by_time", values)
        if search.ends_after == -UNBOUNDED and seqs:
            seqs |= yield from _select_seqs("search_chains", {**values, "seqs": sorted(seqs)})
        nearby = {
            neighbour for seq in seqs for neighbour in range(max(1, seq - NEIGHBOUR_COUNT), seq + NEIGHBOUR_COUNT + 1)
        }
        values["seqs"] = sorted(nearby)
        atoms = yield "search_atoms", values
        validity_ends = yield "search_validity_ends", values
        vectors = yield "search_vectors", values
        return SpaceChanges(0, len(atoms), *_renumber(atoms, validity_ends, vectors), entities)

    @reads
    def atoms_without_vector(
        self, scope: Scope, space_id: str, *, embedder: str, before: int | None, limit: int
    ) -> Operation[list[tuple[int, str]]]:
        if not (yield "space_version", {"id": space_id}):
            return []
        page = {"before": UNBOUNDED if before is None else before, "limit": limit}
        found = yield "atoms_to_embed", {"space_id": space_id, "embedder": embedder, **page}
        return [(row["seq"], row["text"]) for row in found]

    @writes
    def save_vectors(
        self, scope: Scope, space_id: str, embedder: str, vectors: Sequence[tuple[int, bytes]], *, now: datetime
    ) -> Operation[None]:
        space = yield from touch_space(space_id, to_micros(now))
        for seq, vector in vectors:
            location = {"space_id": space_id, "seq": seq, "version": space.version}
            yield vector_statement(location, embedder, vector, self.can_search)

    @writes
    def delete_other_vectors(self, scope: Scope, space_id: str, *, embedder: str) -> Operation[None]:
        yield from _space_version(space_id)
        yield "vectors_delete_other_embedders", {"space_id": space_id, "embedder": embedder}

    @reads
    def all_spaces(
        self, *, after: str, limit: int, changed_since: datetime | None = None
    ) -> Operation[list[tuple[Scope, str]]]:
        since = -UNBOUNDED if changed_since is None else to_micros(changed_since)
        return rows.scoped_ids((yield "platform_spaces", {"after": after, "limit": limit, "since": since}))


def _space_version(id: str, statement: str = "space_version") -> Operation[SpaceVersion]:
    found = yield statement, {"id": id}
    if not found:
        raise NotFoundError("space", id)
    return SpaceVersion(**found[0])


def _select_seqs(statement: str, values: dict[str, Any]) -> Operation[set[int]]:
    return {row["seq"] for row in (yield statement, values)}


def _add_message_dates(found: Sequence[KnownAtom]) -> Operation[list[KnownAtom]]:
    """Add the dates of the cited messages to atoms."""
    cited_ids = [[id for source in each.atom.citations for id in source.message_ids] for each in found]
    ids = sorted({id for each in cited_ids for id in each})
    message_rows = (yield "message_dates_of", {"ids": dump_stored_json(ids)}) if ids else ()
    dates = {row["id"]: from_micros(row["created_at"]) for row in message_rows}
    return [
        replace(each, message_dates=tuple(sorted({dates[id] for id in ids_of_atom if id in dates})))
        for each, ids_of_atom in zip(found, cited_ids, strict=True)
    ]


def _add_citation(space_id: str, added: AddedCitation, now: int) -> Operation[Atom]:
    """Add a citation to an atom that was stated again."""
    row = yield from _load_atom_row(space_id, added.atom_id)
    atom = rows.ATOM.read(row)
    sources = [*_merge_citation(atom.citations, added.citation)]
    if sources == [*atom.citations]:
        return atom
    space = yield from touch_space(space_id, now)
    first: Citation | None = None
    if atom.source_conversation_id is not None or not atom.source_message_ids:
        first, *sources = sources  # citations without a known conversation stay first
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
    """Return the row of an atom in this space. Atoms of other spaces raise `NotFoundError`."""
    found = yield "atom_get", {"id": atom_id}
    if not found or found[0]["memory_space_id"] != space_id:
        raise NotFoundError("atom", atom_id)
    row: rows.Row = found[0]
    return row


def _merge_citation(sources: Sequence[Citation], added: Citation) -> tuple[Citation, ...]:
    """Return the citations with one more, each conversation once.

    >>> _merge_citation([Citation("a", ("1",))], Citation("a", ("1", "2")))
    (Citation(conversation_id='a', message_ids=('1', '2')),)
    """
    merged: dict[str, dict[str, None]] = {}
    for source in (*sources, added):
        merged.setdefault(source.conversation_id, {}).update(dict.fromkeys(source.message_ids))
    return tuple(Citation(id, tuple(messages)) for id, messages in merged.items())


def _renumber(atoms: list[Any], validity_ends: list[Any], vectors: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Renumber rows as if the space contained no others."""
    new_seqs = {row["seq"]: new_seq for new_seq, row in enumerate(atoms, 1)}
    return (
        [{**row, "seq": new_seqs[row["seq"]]} for row in atoms],
        [(new_seqs[seq], known_at, valid_to) for seq, known_at, valid_to in validity_ends if seq in new_seqs],
        [(new_seqs[seq], vector) for seq, vector in vectors if seq in new_seqs],
    )
