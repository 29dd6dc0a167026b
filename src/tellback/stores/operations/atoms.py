"""Operations on spaces, and on the entities and atoms in them: create, merge, add, supersede, archive and delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tellback.errors import AtomSupersededError, InvalidArgumentError, NotFoundError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation, event_statement
from tellback.stores.values import AtomDraft, EntityDraft
from tellback.types.access import Scope
from tellback.types.ids import fold_name, from_micros, to_micros
from tellback.types.jsontext import dump_stored_json
from tellback.types.memory import Atom, AtomStatus, Entity, EntityStatus, MemorySpace

NEVER_VALID = 1 - UNBOUNDED
"""The `valid_to` of an atom that, as is now known, was never valid: it is earlier than every time."""

STATUS_EVENTS = {
    AtomStatus.ACTIVE: "atom.restored",
    AtomStatus.ARCHIVED: "atom.archived",
    AtomStatus.DELETED: "atom.deleted",
}
"""The event type for an atom that changes to a status."""


@dataclass(frozen=True, slots=True)
class SpaceVersion:
    """A space's version, which counts its changes, and the number of atoms ever added to it."""

    version: int
    last_seq: int


def create_space(values: dict[str, Any], reuse_existing: bool) -> Operation[MemorySpace]:
    """Create a space. With `reuse_existing`, return an existing space of that name instead."""
    if reuse_existing:
        yield "platform_space_lock", {"name": values["name"]}
        found = yield from list_spaces(values["name"])
        if found:
            return found[0]
    yield "space_create", values
    yield event_statement("space.created", values["id"], {"name": values["name"]}, values["now"])
    [row] = yield "space_get", {"id": values["id"]}
    return rows.SPACE.read(row)


def get_space(id: str) -> Operation[MemorySpace | None]:
    """Return a space unless it was deleted."""
    return rows.SPACE.read_first((yield "space_get", {"id": id}))


def list_spaces(name: str | None) -> Operation[list[MemorySpace]]:
    """Return spaces in the order of creation."""
    return rows.SPACE.read_all((yield "space_list", {"name": name}))


def touch_space(id: str, now: int, *, added: int = 0, counted: int = 0) -> Operation[SpaceVersion]:
    """Increment a space's version, and lock the space until the transaction ends."""
    found = yield "space_touch", {"id": id, "now": now, "added": added, "counted": counted}
    if not found:
        raise NotFoundError("space", id)
    return SpaceVersion(**found[0])


def create_entity(space_id: str, draft: EntityDraft, now: int) -> Operation[Entity]:
    """Create an entity with its names."""
    space = yield from touch_space(space_id, now)
    draft = replace(draft, aliases=_distinct_names(draft.aliases, exclude=draft.canonical_name))
    yield "entity_insert", rows.row_values(draft, space_id=space_id, version=space.version, now=now)
    yield from _insert_names(space_id, draft.id, (draft.canonical_name, *draft.aliases))
    yield event_statement("entity.created", draft.id, {"space_id": space_id, "type": draft.type.value}, now)
    return (yield from _load_entity(draft.id))


def get_entity(id: str) -> Operation[Entity | None]:
    """Return an entity unless its space was deleted."""
    found = yield "entity_get", {"id": id}
    if not found or not (yield "space_version", {"id": found[0]["memory_space_id"]}):
        return None
    return rows.ENTITY.read(found[0])


def add_aliases(id: str, names: Sequence[str], now: int) -> Operation[Entity]:
    """Add aliases to an entity. Existing aliases change nothing."""
    entity = yield from _follow_merges(id)
    aliases = _distinct_names((*entity.aliases, *names), exclude=entity.canonical_name)
    if aliases == entity.aliases:
        return entity
    space_id = entity.memory_space_id
    space = yield from touch_space(space_id, now)
    values = {"id": entity.id, "aliases": dump_stored_json(aliases), "version": space.version, "now": now}
    yield "entity_set_aliases", values
    yield from _insert_names(space_id, entity.id, aliases[len(entity.aliases) :])
    yield event_statement("entity.updated", entity.id, {"space_id": space_id}, now)
    return (yield from _load_entity(entity.id))


def resolve_entities(space_id: str, ids: Sequence[str]) -> Operation[tuple[str, ...]]:
    """Return the entities that these ids now resolve to, without duplicates."""
    resolved_ids: dict[str, None] = {}
    for id in ids:
        entity = yield from _follow_merges(id)
        if entity.memory_space_id != space_id:
            raise NotFoundError("entity", id)
        resolved_ids[entity.id] = None
    return tuple(resolved_ids)


def merge_entities(canonical_id: str, alias_id: str, now: int) -> Operation[Entity]:
    """Merge one entity into another."""
    first = yield from _follow_merges(canonical_id)
    other = yield from _follow_merges(alias_id)
    if first.id == other.id:
        return first
    space_id = first.memory_space_id
    space = yield from touch_space(space_id, now)
    canonical = yield from _follow_merges(canonical_id)
    alias = yield from _follow_merges(alias_id)
    if canonical.id == alias.id:
        return canonical
    if alias.memory_space_id != space_id:
        raise InvalidArgumentError(f"{alias_id!r} and {canonical_id!r} are in different spaces: they cannot be merged.")
    change = {"version": space.version, "now": now}
    for row in (yield "entity_names_of", {"entity_id": alias.id}):
        yield "entity_name_insert", {"space_id": space_id, "name": row["name"], "entity_id": canonical.id}
    yield "entity_names_delete", {"entity_id": alias.id}
    count = canonical.atom_count
    for row in (yield "atoms_of_entity", {"space_id": space_id, "entity_id": alias.id}):
        atom_entity_ids = rows.parse_ids(row["entity_ids"])
        if canonical.id not in atom_entity_ids and row["status"] == AtomStatus.ACTIVE:
            count += 1
        repointed = dict.fromkeys(canonical.id if id == alias.id else id for id in atom_entity_ids)
        location = {"space_id": space_id, "seq": row["seq"]}
        yield "atom_set_entities", {**location, **change, "entity_ids": dump_stored_json([*repointed])}
        yield "link_insert", {**location, "entity_id": canonical.id}
    yield "links_delete", {"space_id": space_id, "entity_id": alias.id}
    names = (*canonical.aliases, alias.canonical_name, *alias.aliases)
    merged = replace(
        canonical,
        aliases=_distinct_names(names, exclude=canonical.canonical_name),
        atom_count=count,
        first_seen_at=min(filter(None, (canonical.first_seen_at, alias.first_seen_at)), default=None),
        last_seen_at=max(filter(None, (canonical.last_seen_at, alias.last_seen_at)), default=None),
    )
    yield "entity_absorb_alias", rows.row_values(merged, **change)
    yield "entity_mark_merged", {"id": alias.id, "merged_into": canonical.id, **change}
    yield event_statement("entity.merged", alias.id, {"space_id": space_id, "merged_into": canonical.id}, now)
    return (yield from _load_entity(canonical.id))


def _follow_merges(id: str) -> Operation[Entity]:
    """Return the entity that this one was merged into, or itself."""
    entity = yield from get_entity(id)
    while entity is not None and entity.status is EntityStatus.MERGED:
        assert entity.merged_into is not None
        entity = yield from get_entity(entity.merged_into)
    if entity is None:
        raise NotFoundError("entity", id)
    return entity


def _insert_names(space_id: str, entity_id: str, names: Iterable[str]) -> Operation[None]:
    for name in names:
        yield "entity_name_insert", {"space_id": space_id, "name": fold_name(name), "entity_id": entity_id}


def _load_entity(id: str) -> Operation[Entity]:
    [row] = yield "entity_get", {"id": id}
    return rows.ENTITY.read(row)


def _distinct_names(names: Iterable[str], *, exclude: str) -> tuple[str, ...]:
    """Return each name once, in its first spelling."""
    by_folded_name: dict[str, str] = {}
    for name in names:
        if fold_name(name) != fold_name(exclude):
            by_folded_name.setdefault(fold_name(name), name)
    return tuple(by_folded_name.values())


def close_chain(
    space_id: str, old_id: str, successor_id: str, by_seq: int, ends_at: int, version: int, now: int
) -> Operation[None]:
    """End the atoms of the old atom's chain at the start of the new atom (`ends_at`), as known from `now` on."""
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
    """Remove an atom from its chain. The atoms that it ended now end where a later atom starts, or have no end."""
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
    """Recompute an atom's end as if only these atoms came after it."""
    location = {"space_id": change["space_id"], "seq": seq}
    stated = yield "validity_end_own", location
    ends = stated[0]["valid_to"] if stated else None
    yield "validity_ends_delete_later", location
    for row in later:
        if _is_cut_short(row["valid_from"], valid_from, ends):
            ends = row["valid_from"]
            validity_end = {"by_seq": row["seq"], "known_at": row["created_at"]}
            yield "validity_end_insert", {**location, **validity_end, "valid_to": _validity_end(ends, valid_from)}
    successor_id, known_at = (later[0]["id"], later[0]["created_at"]) if later else (None, None)
    superseded = {"superseded_by": successor_id, "superseded_at": known_at}
    yield "atom_set_superseded", {**change, **location, **superseded, "valid_to": ends}


def _is_cut_short(ends_at: int, valid_from: int, ends: int | None) -> bool:
    """Whether an atom ends earlier because another starts at `ends_at`. One that was never valid cannot end earlier."""
    return ends is None or (ends_at < ends and valid_from < ends)


def _validity_end(ends_at: int, valid_from: int) -> int:
    return ends_at if ends_at > valid_from else NEVER_VALID


@dataclass(frozen=True, slots=True)
class AtomWriter:
    """Adds atoms at a given time. With `is_searchable`, it also stores their vectors for the server's own search."""

    scope: Scope
    now: int
    is_searchable: bool

    def add(self, space_id: str, drafts: Sequence[AtomDraft]) -> Operation[list[Atom]]:
        """Add atoms. A draft whose origin the space already has returns the stored atom unchanged."""
        space = yield from touch_space(space_id, self.now)
        stored: list[Atom] = []
        seq = space.last_seq
        for draft in drafts:
            if draft.origin is not None:
                existing = yield "atom_by_origin", {"space_id": space_id, "origin": draft.origin}
                if existing:
                    stored.append(rows.ATOM.read(existing[0]))
                    continue
            seq += 1
            stored.append((yield from self._insert(space_id, seq, space.version, draft)))
        added = seq - space.last_seq
        if added:
            yield "space_recount", {"id": space_id, "last_seq": seq, "counted": added}
        return stored

    def supersede(self, old_id: str, draft: AtomDraft) -> Operation[Atom]:
        """Add an atom that supersedes another. As known from `now` on, earlier atoms of the chain end at its start."""
        first = yield from _get_live_atom(old_id)
        space_id = first.memory_space_id
        space = yield from touch_space(space_id, self.now, added=1, counted=1)
        old = yield from _get_live_atom(old_id)
        if old.superseded_by is not None:
            raise AtomSupersededError(old_id, old.superseded_by)
        # If the clock was set back, the new atom must still be known after the one it replaces.
        writer = replace(self, now=max(self.now, to_micros(old.created_at)))
        seq, version, now = space.last_seq, space.version, writer.now
        new_atom = yield from writer._insert(space_id, seq, version, draft, supersedes=old_id)
        yield from close_chain(space_id, old_id, new_atom.id, seq, to_micros(draft.valid_from), version, now)
        yield event_statement("atom.superseded", old_id, {"space_id": space_id, "superseded_by": new_atom.id}, now)
        return new_atom

    def _insert(
        self, space_id: str, seq: int, version: int, draft: AtomDraft, supersedes: str | None = None
    ) -> Operation[Atom]:
        now, entity_ids = self.now, (yield from resolve_entities(space_id, draft.entity_ids))
        if entity_ids != draft.entity_ids:
            draft = replace(draft, entity_ids=entity_ids)
        location = {"space_id": space_id, "seq": seq, "version": version}
        category = {"category": draft.category.name, "kind": draft.category.kind.value}
        values = rows.row_values(draft, **location, **category, now=now, supersedes=supersedes)
        yield "atom_insert", values
        if draft.valid_to is not None:
            validity_end = {"by_seq": seq, "known_at": now, "valid_to": values["valid_to"]}
            yield "validity_end_insert", {**location, **validity_end}
        if draft.vector is not None:
            yield vector_statement(location, draft.embedder, draft.vector, self.is_searchable)
        for entity_id in entity_ids:
            yield "link_insert", {"space_id": space_id, "entity_id": entity_id, "seq": seq}
            stats = {"id": entity_id, "counted": 1, "seen_at": values["valid_from"]}
            yield "entity_update_stats", {**stats, "version": version, "now": now}
        data: dict[str, Any] = {"space_id": space_id, **category}
        if supersedes is not None:
            data["supersedes"] = supersedes
        yield event_statement("atom.added", draft.id, data, now)
        moment = from_micros(now)
        place = {"memory_space_id": space_id, "scope": self.scope, "created_at": moment, "updated_at": moment}
        return rows.value_from_draft(Atom, draft, **place, supersedes=supersedes)


def vector_statement(
    location: dict[str, Any], embedder: str | None, vector: bytes, is_searchable: bool
) -> tuple[str, dict[str, Any]]:
    """Return the statement that stores an atom's vector."""
    values = {**location, "embedder": embedder, "vector": vector}
    if is_searchable:
        values["numbers"] = rows.vector_to_floats(vector)
    return "vector_put", values


def get_atom(id: str) -> Operation[Atom | None]:
    """Return an atom unless its space was deleted."""
    found = yield "atom_get", {"id": id}
    if not found or not (yield "space_version", {"id": found[0]["memory_space_id"]}):
        return None
    return rows.ATOM.read(found[0])


def set_atom_status(id: str, status: AtomStatus, now: int) -> Operation[Atom]:
    """Archive, restore or delete an atom."""
    found = yield from _get_live_atom(id)
    if found.status == status:
        return found
    space_id = found.memory_space_id
    space = yield from touch_space(space_id, now)
    atom = yield from _get_live_atom(id)
    if atom.status == status:  # changed by another process
        return atom
    [row] = yield "atom_get", {"id": id}
    seq = row["seq"]
    values = {"space_id": space_id, "seq": seq, "status": status.value, "version": space.version, "now": now}
    yield "atom_set_status", values
    counted = (status is AtomStatus.ACTIVE) - (atom.status is AtomStatus.ACTIVE)
    if counted:
        yield "space_recount", {"id": space_id, "last_seq": space.last_seq, "counted": counted}
        for entity_id in atom.entity_ids:
            stats = {"id": entity_id, "counted": counted, "seen_at": None}
            yield "entity_update_stats", {**stats, "version": space.version, "now": now}
    if status is AtomStatus.DELETED:
        yield from remove_from_chain(atom, seq, space.version, now)
    yield event_statement(STATUS_EVENTS[status], id, {"space_id": space_id}, now)
    [row] = yield "atom_get", {"id": id}
    return rows.ATOM.read(row)


def _get_live_atom(id: str) -> Operation[Atom]:
    """Return an atom to change. A deleted atom counts as unknown."""
    atom = yield from get_atom(id)
    if atom is None or atom.status is AtomStatus.DELETED:
        raise NotFoundError("atom", id)
    return atom
