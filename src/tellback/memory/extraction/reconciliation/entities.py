"""Entity resolution: match an extraction's entities with the known ones, and draft new ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tellback.memory.extraction.values import ExtractedEntity, Extraction
from tellback.stores import EntityDraft
from tellback.types.ids import fold_name, new_id
from tellback.types.memory import Entity, EntityStatus, EntityType

_PRONOUN_LIST = """
    user users assistant i me my mine myself you your yours yourself he him his himself she her hers herself it its
    itself we us our ours ourselves they them their theirs themselves one someone somebody anyone anybody everyone
    everybody nobody this that these those who yo tu usted el ella nosotros ellos ellas ich du er sie es wir ihr mich
    dich je il elle nous vous ils elles moi toi eu voce ele ela
"""
_PRONOUNS = frozenset(_PRONOUN_LIST.split()) | {"the user", "the assistant"}
"""Words for people that are not names."""

_ROLE_WORDS = "my our your his her their the mein meine mi mon ma meu minha"
_ROLE_PREFIXES = tuple(f"{word} " for word in _ROLE_WORDS.split())
"""Words before a role, as in "my boss". Such a phrase may mean another person in the next conversation."""


@dataclass(slots=True)
class ResolvedEntities:
    """The entities that an extraction's names refer to.

    `ids` maps folded names to entity ids, and `namesakes` to the ids of other entities of the same name. `drafts` are
    the new entities by id, and `aliases` the new names of known ones. `names` has all names of each entity, the main
    name first.
    """

    ids: dict[str, str] = field(default_factory=dict)
    drafts: dict[str, EntityDraft] = field(default_factory=dict)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    namesakes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def id_of(self, name: str) -> str | None:
        return self.ids.get(fold_name(name))

    def ids_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the entities with these names, without duplicates. An ambiguous name returns all of its namesakes."""
        found: dict[str, None] = {}
        for name in names:
            id = self.id_of(name)
            if id is not None:
                found |= dict.fromkeys((id, *self.namesakes.get(fold_name(name), ())))
        return tuple(found)


def entity_names(extraction: Extraction) -> tuple[str, ...]:
    """Return the names to look up before `resolve_entities`: those of the entities and of the facts' subjects."""
    candidates = [name for entity in extraction.entities for name in (entity.name, *entity.aliases)]
    return _distinct_names((*candidates, *(fact.subject for fact in extraction.facts if fact.subject)))


def resolve_entities(extracted: Sequence[ExtractedEntity], known: Sequence[Entity]) -> ResolvedEntities:
    """Match each extracted entity with a known one, or draft a new one.

    Two entities match if their types are equal and the main name of one is any name of the other. Two people with only
    the alias John in common are different. `known` are the entities with one of the names, and those they were merged
    into; it may contain others.
    """
    index = _EntityIndex(known)
    resolved = ResolvedEntities(names={entity.id: (entity.canonical_name, *entity.aliases) for entity in known})
    for group in _group_entities(extracted):
        found = index.find(group)
        if found is None:
            aliases = index.unused_names(group.names[1:], group.type)
            draft = EntityDraft(new_id("ent"), group.type, group.names[0], group.description, aliases=aliases)
            resolved.drafts[draft.id] = draft
            resolved.names[draft.id] = (draft.canonical_name, *aliases)
        elif aliases := index.unused_names(group.names, group.type):
            resolved.aliases[found.id] = (*resolved.aliases.get(found.id, ()), *aliases)
            resolved.names[found.id] += aliases
        id = draft.id if found is None else found.id
        for name in group.names:
            key = fold_name(name)
            if index.find_by_name(name, group.type) in (None, found) and resolved.ids.setdefault(key, id) != id:
                resolved.namesakes[key] = (*resolved.namesakes.get(key, ()), id)
    for entity in index.active:
        for name in resolved.names[entity.id]:
            resolved.ids.setdefault(fold_name(name), entity.id)
    return resolved


@dataclass(slots=True)
class _EntityGroup:
    """Extracted entities that are the same entity. `own` are their main names."""

    type: EntityType
    own: tuple[str, ...]
    aliases: tuple[str, ...]
    description: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return _distinct_names((*self.own, *self.aliases))

    @property
    def keys(self) -> set[str]:
        return {fold_name(name) for name in self.names}

    def is_same_as(self, other: _EntityGroup) -> bool:
        """Whether the main name of one is any name of the other."""
        if self.type is not other.type:
            return False
        return any(fold_name(name) in other.keys for name in self.own) or any(
            fold_name(name) in self.keys for name in other.own
        )


class _EntityIndex:
    """Known entities by type and name."""

    def __init__(self, known: Sequence[Entity]) -> None:
        by_id = {entity.id: entity for entity in known}
        self.active = [entity for entity in known if entity.status is EntityStatus.ACTIVE]
        self._by_own_name: dict[tuple[EntityType, str], Entity] = {}
        self._by_alias: dict[tuple[EntityType, str], Entity] = {}
        for entity in sorted(known, key=lambda each: (each.status is EntityStatus.MERGED, each.id)):
            current = _follow_merges(entity, by_id)
            if current is None:
                continue
            # The names of a merged entity are aliases of its target, even if their types differ.
            names = self._by_own_name if current is entity else self._by_alias
            names.setdefault((entity.type, fold_name(entity.canonical_name)), current)
            for alias in entity.aliases:
                self._by_alias.setdefault((entity.type, fold_name(alias)), current)

    def find(self, group: _EntityGroup) -> Entity | None:
        """Return the known entity of a group. A match by main name has priority over a match by alias."""
        for name in group.own:
            if found := self.find_by_name(name, group.type):
                return found
        return next(
            (found for name in group.aliases if (found := self._by_own_name.get((group.type, fold_name(name))))), None
        )

    def find_by_name(self, name: str, type: EntityType) -> Entity | None:
        """Return the entity of that type with that main name, otherwise with that alias."""
        key = (type, fold_name(name))
        return self._by_own_name.get(key) or self._by_alias.get(key)

    def unused_names(self, names: Iterable[str], type: EntityType) -> tuple[str, ...]:
        """Return the names that no known entity of that type has."""
        return tuple(name for name in names if self.find_by_name(name, type) is None)


def _follow_merges(entity: Entity, by_id: Mapping[str, Entity]) -> Entity | None:
    """Return the active entity that an entity was merged into, or the entity itself; None if it is not in `by_id`."""
    current: Entity | None = entity
    for _ in by_id:
        if current is None or current.status is EntityStatus.ACTIVE:
            return current
        current = by_id.get(current.merged_into or "")
    return current if current is not None and current.status is EntityStatus.ACTIVE else None


def _group_entities(extracted: Sequence[ExtractedEntity]) -> list[_EntityGroup]:
    """Group extracted entities of one type if the main name of one is any name of the other, in order of appearance.

    A common alias alone is not enough.
    """
    groups: list[_EntityGroup] = []
    for entity in extracted:
        group_of_one = _to_group(entity)
        if group_of_one is None:
            continue
        same = [group for group in groups if group.is_same_as(group_of_one)]
        if not same:
            groups.append(group_of_one)
            continue
        first = same[0]
        for other in (*same[1:], group_of_one):
            first.own = _distinct_names((*first.own, *other.own))
            first.aliases = _distinct_names((*first.aliases, *other.aliases))
            first.description = first.description or other.description
        groups = [group for group in groups if group is first or group not in same]
    claimed = Counter((group.type, key) for group in groups for key in group.keys)
    for group in groups:
        own = {fold_name(name) for name in group.own}
        group.aliases = tuple(
            name for name in group.aliases if fold_name(name) not in own and claimed[group.type, fold_name(name)] == 1
        )
    return groups


def _to_group(entity: ExtractedEntity) -> _EntityGroup | None:
    """Return a group with one extracted entity, or None if it has no valid name."""
    aliases = tuple(name for name in entity.aliases if not fold_name(name).startswith(_ROLE_PREFIXES))
    names = _distinct_names((entity.name, *aliases))
    return _EntityGroup(entity.type, names[:1], names[1:], entity.description) if names else None


def _distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return each valid name once, as it was first written."""
    distinct: dict[str, str] = {}
    for name in names:
        if _is_name(name):
            distinct.setdefault(fold_name(name), name.strip())
    return tuple(distinct.values())


def _is_name(name: str) -> bool:
    key = fold_name(name)
    return key not in _PRONOUNS and any(char.isalnum() for char in key)
