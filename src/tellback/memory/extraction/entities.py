"""Who and what an extraction is about: the entities that are known already, and those to be made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tellback.memory.extraction.values import ExtractedEntity, Extraction
from tellback.stores import EntityDraft
from tellback.types.ids import new_id
from tellback.types.memory import Entity, EntityStatus, EntityType
from tellback.types.names import folded

_UNNAMED = """
    user users assistant i me my mine myself you your yours yourself he him his himself she her hers herself it its
    itself we us our ours ourselves they them their theirs themselves one someone somebody anyone anybody everyone
    everybody nobody this that these those who yo tu usted el ella nosotros ellos ellas ich du er sie es wir ihr mich
    dich je il elle nous vous ils elles moi toi eu voce ele ela
"""
_NO_NAMES = frozenset(_UNNAMED.split()) | {"the user", "the assistant"}
"""What people and models call someone without naming them."""


_ROLES = (
    "my ",
    "our ",
    "your ",
    "his ",
    "her ",
    "their ",
    "the ",
    "mein ",
    "meine ",
    "mi ",
    "mon ",
    "ma ",
    "meu ",
    "minha ",
)
"""How one speaks of whoever has a role: of someone else next year, and in the next conversation."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What an extraction's names stand for.

    `ids` gives an entity's id by folded name, and `namesakes` the ids of others that the extraction calls so. `drafts`
    are the entities among them that are to be made, by id, and `aliases` new names of those that are known. `names` are
    all names of each, its own first.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    drafts: Mapping[str, EntityDraft] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    namesakes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def id_of(self, name: str) -> str | None:
        """The entity that a name stands for."""
        return self.ids.get(folded(name))

    def ids_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities that some names stand for, each once. What a fact only names may be either of two namesakes."""
        found: dict[str, None] = {}
        for name in names:
            id = self.id_of(name)
            if id is not None:
                found |= dict.fromkeys((id, *self.namesakes.get(folded(name), ())))
        return tuple(found)

    def names_of(self, name: str) -> tuple[str, ...]:
        """All names of what a name stands for, its own first; the name alone if it stands for nothing known."""
        id = self.id_of(name)
        return (name,) if id is None else self.names[id]


def names(extraction: Extraction) -> tuple[str, ...]:
    """The names to look up among known entities before `resolve`: of entities, and of what facts are about."""
    listed = [name for entity in extraction.entities for name in (entity.name, *entity.aliases)]
    listed += [fact.subject for fact in extraction.facts if fact.subject]
    kept: dict[str, str] = {}
    for name in listed:
        if _is_name(name):
            kept.setdefault(folded(name), name)
    return tuple(kept.values())


def resolve(extracted: Sequence[ExtractedEntity], known: Sequence[Entity]) -> Resolved:
    """Tell which known entity each extracted one is, and which are to be made.

    They are the same if the type is, and the own name of one is a name of the other: two people whom someone calls John
    are two. `known` are the entities that have one of the names, with what merged ones were merged into; more do no
    harm.
    """
    book = _Book(known)
    made = _Making({entity.id: (entity.canonical_name, *entity.aliases) for entity in known})
    for group in _groups(extracted):
        found = book.find(group)
        if found is None:
            id = made.draft(group, book.free(group.names[1:], group.type))
        else:
            id = found.id
            made.rename(id, book.free(group.names, group.type))
        made.call(id, [name for name in group.names if book.owner(name, group.type) in (None, found)])
    for entity in book.standing:
        for name in made.called[entity.id]:
            made.ids.setdefault(folded(name), entity.id)
    return Resolved(made.ids, made.drafts, made.aliases, made.called, made.namesakes)


class _Making:
    """What is resolved so far."""

    def __init__(self, called: dict[str, tuple[str, ...]]) -> None:
        self.called = called
        self.ids: dict[str, str] = {}
        self.drafts: dict[str, EntityDraft] = {}
        self.aliases: dict[str, tuple[str, ...]] = {}
        self.namesakes: dict[str, tuple[str, ...]] = {}

    def draft(self, group: _Group, aliases: tuple[str, ...]) -> str:
        made = EntityDraft(new_id("ent"), group.type, group.names[0], group.description, aliases=aliases)
        self.drafts[made.id] = made
        self.called[made.id] = (made.canonical_name, *aliases)
        return made.id

    def rename(self, id: str, names: tuple[str, ...]) -> None:
        if names:
            self.aliases[id] = (*self.aliases.get(id, ()), *names)
            self.called[id] = (*self.called[id], *names)

    def call(self, id: str, names: Iterable[str]) -> None:
        for name in names:
            key = folded(name)
            if self.ids.setdefault(key, id) != id:
                self.namesakes[key] = (*self.namesakes.get(key, ()), id)


@dataclass(slots=True)
class _Group:
    """Extracted entities that are one: by its own names, then by what it is also called."""

    type: EntityType
    own: tuple[str, ...]
    aliases: tuple[str, ...]
    description: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return _distinct((*self.own, *self.aliases))

    @property
    def keys(self) -> set[str]:
        return {folded(name) for name in self.names}

    def is_one_with(self, other: _Group) -> bool:
        """Whether one is called what the other is named."""
        if self.type is not other.type:
            return False
        return any(folded(name) in other.keys for name in self.own) or any(
            folded(name) in self.keys for name in other.own
        )


class _Book:
    """Known entities by type and name."""

    def __init__(self, known: Sequence[Entity]) -> None:
        by_id = {entity.id: entity for entity in known}
        self.standing = [entity for entity in known if entity.status is EntityStatus.ACTIVE]
        self._own: dict[tuple[EntityType, str], Entity] = {}
        self._also: dict[tuple[EntityType, str], Entity] = {}
        for entity in sorted(known, key=lambda each: (each.status is EntityStatus.MERGED, each.id)):
            stands = _standing(entity, by_id)
            if stands is None:
                continue
            # What was merged is another name of what it was merged into, also if that is of another type.
            own = self._own if stands is entity else self._also
            own.setdefault((entity.type, folded(entity.canonical_name)), stands)
            for alias in entity.aliases:
                self._also.setdefault((entity.type, folded(alias)), stands)

    def find(self, group: _Group) -> Entity | None:
        """The entity that a group is: one of its own name rather than one that is named as it is also called."""
        for name in group.own:
            if found := self.owner(name, group.type):
                return found
        return next((found for name in group.aliases if (found := self._own.get((group.type, folded(name))))), None)

    def owner(self, name: str, type: EntityType) -> Entity | None:
        """The entity of that type that has a name: as its own, or else as another."""
        place = (type, folded(name))
        return self._own.get(place) or self._also.get(place)

    def free(self, names: Iterable[str], type: EntityType) -> tuple[str, ...]:
        """The names that no known entity of that type has."""
        return tuple(name for name in names if self.owner(name, type) is None)


def _standing(entity: Entity, by_id: Mapping[str, Entity]) -> Entity | None:
    """What stands for an entity now; None if that was not given."""
    seen: Entity | None = entity
    for _ in by_id:
        if seen is None or seen.status is EntityStatus.ACTIVE:
            return seen
        seen = by_id.get(seen.merged_into or "")
    return seen if seen is not None and seen.status is EntityStatus.ACTIVE else None


def _groups(extracted: Sequence[ExtractedEntity]) -> list[_Group]:
    """Extracted entities of one type of which one is called what the other is named are one, in the order of the first.

    What two of them are only also called tells nothing of either.
    """
    groups: list[_Group] = []
    for entity in extracted:
        made = _group(entity)
        if made is None:
            continue
        shared = [group for group in groups if group.is_one_with(made)]
        if not shared:
            groups.append(made)
            continue
        first = shared[0]
        for other in (*shared[1:], made):
            first.own = _distinct((*first.own, *other.own))
            first.aliases = _distinct((*first.aliases, *other.aliases))
            first.description = first.description or other.description
        groups = [group for group in groups if group is first or group not in shared]
    claimed = Counter((group.type, key) for group in groups for key in group.keys)
    for group in groups:
        own = {folded(name) for name in group.own}
        group.aliases = tuple(
            name for name in group.aliases if folded(name) not in own and claimed[group.type, folded(name)] == 1
        )
    return groups


def _group(entity: ExtractedEntity) -> _Group | None:
    """What an extracted entity is called, if it has a name at all."""
    aliases = tuple(name for name in entity.aliases if not folded(name).startswith(_ROLES))
    named = _distinct((entity.name, *aliases))
    return _Group(entity.type, named[:1], named[1:], entity.description) if named else None


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once, as it was first written; what is no name is left out."""
    kept: dict[str, str] = {}
    for name in names:
        if _is_name(name):
            kept.setdefault(folded(name), name.strip())
    return tuple(kept.values())


def _is_name(name: str) -> bool:
    key = folded(name)
    return key not in _NO_NAMES and any(char.isalnum() for char in key)
