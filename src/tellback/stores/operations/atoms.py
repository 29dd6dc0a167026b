"""Operations on spaces and atoms: add, list, supersede, archive, delete, and the vectors of atoms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any

from tellback.errors import AtomSupersededError, NotFoundError
from tellback.stores import rows
from tellback.stores.engine import (
    UNBOUNDED,
    Operation,
    SqlEngine,
    SqlPort,
    event_statement,
    reads,
    reads_briefly,
    writes,
)
from tellback.stores.operations.entities import adjust_atom_count, link_atom, resolve_entities
from tellback.stores.ports.memory import AtomDraft, AtomFilter, SpaceChanges
from tellback.types.access import Scope
from tellback.types.ids import from_micros, to_micros
from tellback.types.memory import Atom, AtomStatus, MemorySpace

NEVER_VALID = 1 - UNBOUNDED
"""Where an atom is closed that turns out never to hold: then it is over at every moment, not only from its end on."""


STATUS_EVENTS = {
    AtomStatus.ACTIVE: "atom.restored",
    AtomStatus.ARCHIVED: "atom.archived",
    AtomStatus.DELETED: "atom.deleted",
}
"""What is told of an atom whose status became this."""

_NOT_SUPERSEDED: dict[str, Any] = {"superseded_by": None, "superseded_at": None}


def close_chain(
    space_id: str, old_id: str, successor_id: str, by_seq: int, ends_at: int, version: int, now: int
) -> Operation[None]:
    """From `now` on, no atom of a chain up to the old one is known to hold past the beginning of the new one."""
    found = yield "chain_before", {"space_id": space_id, "id": old_id, "ends": ends_at}
    for row in found:
        location = {"space_id": space_id, "seq": row["seq"]}
        is_cut = _is_cut_short(ends_at, row["valid_from"], row["valid_to"])
        if is_cut:
            validity_end = {"by_seq": by_seq, "known_at": now, "valid_to": _validity_end(ends_at, row["valid_from"])}
            yield "validity_end_insert", {**location, **validity_end}
        if is_cut or row["id"] == old_id:
            change = {
                "valid_to": ends_at if is_cut else row["valid_to"],
                "superseded_at": now if row["superseded_at"] is None else row["superseded_at"],
                "superseded_by": row["superseded_by"] or successor_id,
            }
            yield "atom_set_superseded", {**location, **change, "version": version, "now": now}


def remove_from_chain(atom: Atom, seq: int, version: int, now: int) -> Operation[None]:
    """Take an atom out of its chain: what it closed ends where those after it begin, or is open again."""
    space_id, before, after = atom.memory_space_id, atom.supersedes, atom.superseded_by
    change = {"space_id": space_id, "version": version, "now": now}
    if after is not None:
        yield "atom_set_supersedes", {**change, "id": after, "supersedes": before}
    if before is None:
        return
    yield "atom_set_superseded_by", {**change, "id": before, "superseded_by": after}
    found = yield "chain_ended_by", {"space_id": space_id, "by_seq": seq, "before": before}
    closed = {row["seq"] for row in found}
    yield "validity_ends_delete_by", {"space_id": space_id, "by_seq": seq}
    chain = yield "chain_after", {"space_id": space_id, "id": found[0]["id"]}
    for number, row in enumerate(chain, 1):
        if row["seq"] in closed:
            yield from _recompute_validity_ends(change, row["seq"], row["valid_from"], chain[number:])


def _recompute_validity_ends(change: dict[str, Any], seq: int, valid_from: int, later: list[Any]) -> Operation[None]:
    """Close an atom as it would have been, had there been only these after it."""
    location = {"space_id": change["space_id"], "seq": seq}
    stated = yield "validity_end_own", location
    ends = stated[0]["valid_to"] if stated else None
    yield "validity_ends_delete_later", location
    for row in later:
        if _is_cut_short(row["valid_from"], valid_from, ends):
            ends = row["valid_from"]
            validity_end = {"by_seq": row["seq"], "known_at": row["created_at"]}
            yield "validity_end_insert", {**location, **validity_end, "valid_to": _validity_end(ends, valid_from)}
    superseded = _NOT_SUPERSEDED
    if later:
        superseded = {"superseded_by": later[0]["id"], "superseded_at": later[0]["created_at"]}
    yield "atom_set_superseded", {**change, **location, **superseded, "valid_to": ends}


def _is_cut_short(ends_at: int, valid_from: int, ends: int | None) -> bool:
    """Whether an atom is cut by one that begins then. What never holds cannot be cut further."""
    return ends is None or (ends_at < ends and valid_from < ends)


def _validity_end(ends_at: int, valid_from: int) -> int:
    return ends_at if ends_at > valid_from else NEVER_VALID


@dataclass(frozen=True, slots=True)
class SpaceVersion:
    """How often a space was changed, and how many atoms were ever added to it."""

    version: int
    last_seq: int


def create_space(values: dict[str, Any], reuse_existing: bool) -> Operation[MemorySpace]:
    """Make a space; with `reuse_existing`, only if there is none of that name."""
    if reuse_existing:
        yield "platform_space_lock", {"name": values["name"]}
        found = yield "space_list", {"name": values["name"]}
        if found:
            return rows.SPACE.read(found[0])
    yield "space_create", values
    yield event_statement("space.created", values["id"], {"name": values["name"]}, values["now"])
    found = yield "space_get", {"id": values["id"]}
    return rows.SPACE.read(found[0])


def get_space(id: str) -> Operation[MemorySpace | None]:
    """A space that was not deleted."""
    found = yield "space_get", {"id": id}
    return rows.SPACE.read_first(found)


def list_spaces(name: str | None) -> Operation[list[MemorySpace]]:
    """Spaces in the order they were made."""
    found = yield "space_list", {"name": name}
    return rows.SPACE.read_all(found)


def touch_space(id: str, now: int, *, added: int = 0, counted: int = 0) -> Operation[SpaceVersion]:
    """Bump a space's version; the space is ours until the transaction ends."""
    found = yield "space_touch", {"id": id, "now": now, "added": added, "counted": counted}
    if not found:
        raise NotFoundError("space", id)
    return SpaceVersion(**found[0])


def space_version(id: str) -> Operation[SpaceVersion]:
    """How far a space has come."""
    found = yield "space_version", {"id": id}
    if not found:
        raise NotFoundError("space", id)
    return SpaceVersion(**found[0])


def add_atoms(
    scope: Scope, space_id: str, drafts: Sequence[AtomDraft], now: int, is_searchable: bool
) -> Operation[list[Atom]]:
    """Add atoms. With `is_searchable`, their vectors are stored for the server's own search as well."""
    space = yield from touch_space(space_id, now)
    stored: list[Atom] = []
    seq = space.last_seq
    for draft in drafts:
        if draft.origin is not None:
            existing = yield "atom_by_origin", {"space_id": space_id, "origin": draft.origin}
            if existing:
                stored.append(rows.ATOM.read(existing[0]))
                continue
        seq += 1
        stored.append((yield from _insert_atom(scope, space_id, seq, space.version, draft, None, now, is_searchable)))
    added = seq - space.last_seq
    if added:
        yield "space_recount", {"id": space_id, "last_seq": seq, "counted": added}
    return stored


def _insert_atom(
    scope: Scope,
    space_id: str,
    seq: int,
    version: int,
    draft: AtomDraft,
    supersedes: str | None,
    now: int,
    is_searchable: bool,
) -> Operation[Atom]:
    entity_ids = yield from resolve_entities(space_id, draft.entity_ids)
    valid_from = to_micros(draft.valid_from)
    location = {"space_id": space_id, "seq": seq, "version": version}
    if entity_ids != draft.entity_ids:
        draft = replace(draft, entity_ids=entity_ids)
    category = {"category": draft.category.name, "kind": draft.category.kind.value}
    values = rows.row_values(draft, **location, **category, now=now, supersedes=supersedes)
    yield "atom_insert", values
    if draft.valid_to is not None:
        validity_end = {"by_seq": seq, "known_at": now, "valid_to": values["valid_to"]}
        yield "validity_end_insert", {**location, **validity_end}
    if draft.vector is not None:
        yield _vector_statement(location, draft.embedder, draft.vector, is_searchable)
    for entity_id in entity_ids:
        yield from link_atom(space_id, entity_id, seq, version, valid_from, now)
    data: dict[str, Any] = {"space_id": space_id, **category}
    if supersedes is not None:
        data["supersedes"] = supersedes
    yield event_statement("atom.added", draft.id, data, now)
    moment = from_micros(now)
    place = {"memory_space_id": space_id, "scope": scope, "created_at": moment, "updated_at": moment}
    return rows.value_from_draft(Atom, draft, **place, supersedes=supersedes)


def _vector_statement(
    location: dict[str, Any], embedder: str | None, vector: bytes, is_searchable: bool
) -> tuple[str, dict[str, Any]]:
    values = {**location, "embedder": embedder, "vector": vector}
    if is_searchable:
        values["numbers"] = rows.vector_to_floats(vector)
    return "vector_put", values


def get_atom(id: str) -> Operation[Atom | None]:
    """An atom of a space that was not deleted."""
    found = yield "atom_get", {"id": id}
    if not found or not (yield "space_version", {"id": found[0]["memory_space_id"]}):
        return None
    return rows.ATOM.read(found[0])


def supersede_atom(scope: Scope, old_id: str, draft: AtomDraft, now: int, is_searchable: bool) -> Operation[Atom]:
    """Add an atom in another's place: from now on, no earlier one of the chain is known to hold past its beginning."""
    first = yield from _get_live_atom(old_id)
    space_id = first.memory_space_id
    space = yield from touch_space(space_id, now, added=1, counted=1)
    old = yield from _get_live_atom(old_id)
    if old.superseded_by is not None:
        raise AtomSupersededError(old_id, old.superseded_by)
    now = max(now, to_micros(old.created_at))  # also by a clock that was set back, it is known after what it replaces
    new_atom = yield from _insert_atom(
        scope, space_id, space.last_seq, space.version, draft, old_id, now, is_searchable
    )
    begins_at = to_micros(draft.valid_from)
    yield from close_chain(space_id, old_id, new_atom.id, space.last_seq, begins_at, space.version, now)
    yield event_statement("atom.superseded", old_id, {"space_id": space_id, "superseded_by": new_atom.id}, now)
    return new_atom


def set_atom_status(id: str, status: AtomStatus, now: int) -> Operation[Atom]:
    """Archive, restore or delete an atom."""
    found = yield from _get_live_atom(id)
    if found.status == status:
        return found
    space_id = found.memory_space_id
    space = yield from touch_space(space_id, now)
    atom = yield from _get_live_atom(id)
    if atom.status == status:  # somebody else was faster
        return atom
    [row] = yield "atom_get", {"id": id}
    seq = row["seq"]
    values = {"space_id": space_id, "seq": seq, "status": status.value, "version": space.version, "now": now}
    yield "atom_set_status", values
    counted = (status is AtomStatus.ACTIVE) - (atom.status is AtomStatus.ACTIVE)
    if counted:
        yield "space_recount", {"id": space_id, "last_seq": space.last_seq, "counted": counted}
        for entity_id in atom.entity_ids:
            yield from adjust_atom_count(entity_id, space.version, counted, now)
    if status is AtomStatus.DELETED:
        yield from remove_from_chain(atom, seq, space.version, now)
    yield event_statement(STATUS_EVENTS[status], id, {"space_id": space_id}, now)
    [row] = yield "atom_get", {"id": id}
    return rows.ATOM.read(row)


def _get_live_atom(id: str) -> Operation[Atom]:
    """An atom to act on: what was deleted is as good as unknown."""
    atom = yield from get_atom(id)
    if atom is None or atom.status is AtomStatus.DELETED:
        raise NotFoundError("atom", id)
    return atom


class SqlAtoms(SqlPort):
    """The part of `MemoryStore` about spaces, atoms and their vectors."""

    def __init__(self, engine: SqlEngine) -> None:
        super().__init__(engine)
        self._is_searchable = engine.search != "none"

    @writes
    def create_space(self, scope: Scope, space: MemorySpace, *, reuse_existing: bool = False) -> Operation[MemorySpace]:
        values = rows.row_values(space, now=to_micros(space.created_at))
        return (yield from create_space(values, reuse_existing))

    @reads
    def space(self, scope: Scope, id: str) -> Operation[MemorySpace | None]:
        return (yield from get_space(id))

    @reads
    def spaces(self, scope: Scope, *, name: str | None = None) -> Operation[list[MemorySpace]]:
        return (yield from list_spaces(name))

    @writes
    def delete_space(self, scope: Scope, id: str, *, now: datetime) -> Operation[None]:
        if not (yield "space_delete", {"id": id, "now": to_micros(now)}):
            raise NotFoundError("space", id)
        yield event_statement("space.deleted", id, {}, to_micros(now))

    @reads_briefly
    def version(self, scope: Scope, space_id: str) -> Operation[int]:
        return (yield from space_version(space_id)).version

    @writes
    def add(self, scope: Scope, space_id: str, drafts: Sequence[AtomDraft], *, now: datetime) -> Operation[list[Atom]]:
        return (yield from add_atoms(scope, space_id, drafts, to_micros(now), self._is_searchable))

    @reads
    def atom(self, scope: Scope, id: str) -> Operation[Atom | None]:
        return (yield from get_atom(id))

    @reads
    def atoms_by_origin(self, scope: Scope, space_id: str, origins: Sequence[str]) -> Operation[dict[str, Atom]]:
        yield from space_version(space_id)
        by_origin: dict[str, Atom] = {}
        for origin in origins:
            stored = yield "atom_by_origin", {"space_id": space_id, "origin": origin}
            if stored:
                by_origin[origin] = rows.ATOM.read(stored[0])
        return by_origin

    @reads
    def atoms(self, scope: Scope, space_id: str, atom_filter: AtomFilter) -> Operation[list[Atom]]:
        yield from space_version(space_id)
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
        return (yield from supersede_atom(scope, old_id, draft, to_micros(now), self._is_searchable))

    @writes
    def set_status(self, scope: Scope, id: str, status: AtomStatus, *, now: datetime) -> Operation[Atom]:
        return (yield from set_atom_status(id, status, to_micros(now)))

    @reads
    def changes(
        self, scope: Scope, space_id: str, *, after: int, embedder: str, max_atoms: int | None = None
    ) -> Operation[SpaceChanges]:
        # Of one moment: an atom whose end is read with its successor missing would leave nothing of the chain.
        yield "platform_snapshot", {}
        current = yield from space_version(space_id)
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
            yield _vector_statement(
                {"space_id": space_id, "seq": seq, "version": space.version}, embedder, vector, self._is_searchable
            )

    @writes
    def delete_other_vectors(self, scope: Scope, space_id: str, *, embedder: str) -> Operation[None]:
        yield from space_version(space_id)
        yield "vectors_delete_other_embedders", {"space_id": space_id, "embedder": embedder}
