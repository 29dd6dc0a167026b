"""Operations on spaces and entities: create, find, add aliases, merge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.stores import rows
from tellback.stores.engine import Operation, event_statement
from tellback.stores.values import EntityDraft
from tellback.types.ids import fold_name
from tellback.types.jsontext import dump_stored_json
from tellback.types.memory import AtomStatus, Entity, EntityStatus, MemorySpace


@dataclass(frozen=True, slots=True)
class SpaceVersion:
    """How often a space was changed, and how many atoms were ever added to it."""

    version: int
    last_seq: int


def create_space(values: dict[str, Any], reuse_existing: bool) -> Operation[MemorySpace]:
    """Make a space; with `reuse_existing`, only if there is none of that name."""
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
    """A space that was not deleted."""
    return rows.SPACE.read_first((yield "space_get", {"id": id}))


def list_spaces(name: str | None) -> Operation[list[MemorySpace]]:
    """Spaces in the order they were made."""
    return rows.SPACE.read_all((yield "space_list", {"name": name}))


def touch_space(id: str, now: int, *, added: int = 0, counted: int = 0) -> Operation[SpaceVersion]:
    """Bump a space's version; the space is ours until the transaction ends."""
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
    space_id = entity.memory_space_id
    space = yield from touch_space(space_id, now)
    values = {"id": entity.id, "aliases": dump_stored_json(aliases), "version": space.version, "now": now}
    yield "entity_set_aliases", values
    yield from _insert_names(space_id, entity.id, aliases[len(entity.aliases) :])
    yield event_statement("entity.updated", entity.id, {"space_id": space_id}, now)
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


def merge_entities(canonical_id: str, alias_id: str, now: int) -> Operation[Entity]:
    """Let one entity stand for another."""
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
        raise InvalidArgumentError(f"{alias_id!r} is in another space than {canonical_id!r}: only one space's merge.")
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
    """The entity that stands for this one now."""
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
    """Each name once, as it was first written."""
    by_folded_name: dict[str, str] = {}
    for name in names:
        if fold_name(name) != fold_name(exclude):
            by_folded_name.setdefault(fold_name(name), name)
    return tuple(by_folded_name.values())
