"""Operations on entities: create, find by folded name, add aliases, merge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.stores import rows
from tellback.stores.engine import UNBOUNDED, Operation, SqlPort, event_statement, reads, writes
from tellback.stores.ports.memory import EntityDraft
from tellback.types.access import Scope
from tellback.types.ids import fold_name, to_micros
from tellback.types.jsontext import dump_stored_json
from tellback.types.memory import AtomStatus, Entity, EntityStatus, EntityType


def create_entity(space_id: str, draft: EntityDraft, now: int) -> Operation[Entity]:
    """Create an entity with its names."""
    space = yield "space_touch", {"id": space_id, "now": now, "added": 0, "counted": 0}
    if not space:
        raise NotFoundError("space", space_id)
    aliases = _distinct_names(draft.aliases, exclude=draft.canonical_name)
    draft = replace(draft, aliases=aliases)
    yield "entity_insert", rows.row_values(draft, space_id=space_id, version=space[0]["version"], now=now)
    for name in (draft.canonical_name, *aliases):
        yield "entity_name_insert", {"space_id": space_id, "name": fold_name(name), "entity_id": draft.id}
    yield event_statement("entity.created", draft.id, {"space_id": space_id, "type": draft.type.value}, now)
    return (yield from _load_entity(draft.id))


def get_entity(id: str) -> Operation[Entity | None]:
    """An entity of a space that was not deleted."""
    found = yield "entity_get", {"id": id}
    if not found or not (yield "space_version", {"id": found[0]["memory_space_id"]}):
        return None
    return rows.ENTITY.read(found[0])


def add_aliases(id: str, names: Sequence[str], now: int) -> Operation[Entity]:
    """Add names that an entity is also called by; those it has change nothing."""
    entity = yield from _follow_merges(id)
    aliases = _distinct_names((*entity.aliases, *names), exclude=entity.canonical_name)
    if aliases == entity.aliases:
        return entity
    space = yield "space_touch", {"id": entity.memory_space_id, "now": now, "added": 0, "counted": 0}
    values = {"id": entity.id, "aliases": dump_stored_json(aliases), "version": space[0]["version"], "now": now}
    yield "entity_set_aliases", values
    for name in aliases[len(entity.aliases) :]:
        location = {"space_id": entity.memory_space_id, "entity_id": entity.id}
        yield "entity_name_insert", {**location, "name": fold_name(name)}
    yield event_statement("entity.updated", entity.id, {"space_id": entity.memory_space_id}, now)
    return (yield from _load_entity(entity.id))


def resolve_entities(space_id: str, ids: Sequence[str]) -> Operation[tuple[str, ...]]:
    """The entities that stand for these now, each once."""
    resolved_ids: dict[str, None] = {}
    for id in ids:
        entity = yield from _follow_merges(id)
        if entity.memory_space_id != space_id:
            raise NotFoundError("entity", id)
        resolved_ids[entity.id] = None
    return tuple(resolved_ids)


def link_atom(space_id: str, entity_id: str, seq: int, version: int, seen_at: int, now: int) -> Operation[None]:
    """An atom is about it."""
    yield "link_insert", {"space_id": space_id, "entity_id": entity_id, "seq": seq}
    yield "entity_update_stats", {"id": entity_id, "counted": 1, "seen_at": seen_at, "version": version, "now": now}


def adjust_atom_count(entity_id: str, version: int, counted: int, now: int) -> Operation[None]:
    """An atom about it was put aside, or came back."""
    yield "entity_update_stats", {"id": entity_id, "counted": counted, "seen_at": None, "version": version, "now": now}


def merge_entities(canonical_id: str, alias_id: str, now: int) -> Operation[Entity]:
    """Let one entity stand for another."""
    first = yield from _follow_merges(canonical_id)
    other = yield from _follow_merges(alias_id)
    if first.id == other.id:
        return first
    space_id = first.memory_space_id
    space = yield "space_touch", {"id": space_id, "now": now, "added": 0, "counted": 0}
    if not space:
        raise NotFoundError("entity", canonical_id)
    canonical = yield from _follow_merges(canonical_id)
    alias = yield from _follow_merges(alias_id)
    if canonical.id == alias.id:
        return canonical
    if alias.memory_space_id != space_id:
        raise InvalidArgumentError(f"{alias_id!r} is in another space than {canonical_id!r}: only one space's merge.")
    version: int = space[0]["version"]
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
        yield (
            "atom_set_entities",
            {**location, "entity_ids": dump_stored_json([*repointed]), "version": version, "now": now},
        )
        yield "link_insert", {**location, "entity_id": canonical.id}
    yield "links_delete", {"space_id": space_id, "entity_id": alias.id}
    first_seen = [moment for moment in (canonical.first_seen_at, alias.first_seen_at) if moment is not None]
    last_seen = [moment for moment in (canonical.last_seen_at, alias.last_seen_at) if moment is not None]
    aliases = _distinct_names(
        (*canonical.aliases, alias.canonical_name, *alias.aliases), exclude=canonical.canonical_name
    )
    yield (
        "entity_absorb_alias",
        {
            "id": canonical.id,
            "aliases": dump_stored_json(aliases),
            "atom_count": count,
            "first_seen_at": to_micros(min(first_seen)) if first_seen else None,
            "last_seen_at": to_micros(max(last_seen)) if last_seen else None,
            "version": version,
            "now": now,
        },
    )
    yield "entity_mark_merged", {"id": alias.id, "merged_into": canonical.id, "version": version, "now": now}
    yield event_statement("entity.merged", alias.id, {"space_id": space_id, "merged_into": canonical.id}, now)
    return (yield from _load_entity(canonical.id))


def _follow_merges(id: str) -> Operation[Entity]:
    """The entity that stands for this one now."""
    entity = yield from get_entity(id)
    while entity is not None and entity.status is EntityStatus.MERGED:
        assert entity.merged_into is not None
        entity = yield from get_entity(entity.merged_into)
    if entity is None:
        raise NotFoundError("entity", id)
    return entity


def _load_entity(id: str) -> Operation[Entity]:
    [row] = yield "entity_get", {"id": id}
    return rows.ENTITY.read(row)


def _distinct_names(names: Iterable[str], *, exclude: str) -> tuple[str, ...]:
    """Each name once, as it was first written."""
    by_folded_name: dict[str, str] = {}
    for name in names:
        if fold_name(name) != fold_name(exclude):
            by_folded_name.setdefault(fold_name(name), name)
    return tuple(by_folded_name.values())


class SqlEntities(SqlPort):
    """The part of `MemoryStore` about entities."""

    @writes
    def create_entity(self, scope: Scope, space_id: str, draft: EntityDraft, *, now: datetime) -> Operation[Entity]:
        return (yield from create_entity(space_id, draft, to_micros(now)))

    @reads
    def entity(self, scope: Scope, id: str) -> Operation[Entity | None]:
        return (yield from get_entity(id))

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
        if not (yield "space_version", {"id": space_id}):
            raise NotFoundError("space", space_id)
        filters = {"type": None if type is None else type.value, "after": after or ""}
        found = yield "entity_list", {"space_id": space_id, "limit": UNBOUNDED if limit is None else limit, **filters}
        return rows.ENTITY.read_all(found)

    @reads
    def find_entities(
        self, scope: Scope, space_id: str, name: str, *, type: EntityType | None = None
    ) -> Operation[list[Entity]]:
        if not (yield "space_version", {"id": space_id}):
            raise NotFoundError("space", space_id)
        key = fold_name(name)
        values = {"space_id": space_id, "name": key, "type": None if type is None else type.value}
        found = yield "entities_by_name", values
        entities = rows.ENTITY.read_all(found)
        return sorted(entities, key=lambda entity: (fold_name(entity.canonical_name) != key, entity.id))

    @writes
    def merge(self, scope: Scope, canonical_id: str, alias_id: str, *, now: datetime) -> Operation[Entity]:
        return (yield from merge_entities(canonical_id, alias_id, to_micros(now)))
