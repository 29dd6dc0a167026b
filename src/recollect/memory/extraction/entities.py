"""Who and what an extraction is about: the entities that are known already, and those to be made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from recollect.memory.extraction.values import ExtractedEntity, Extraction
from recollect.stores import EntityDraft
from recollect.types.ids import new_id
from recollect.types.memory import Entity, EntityStatus, EntityType
from recollect.types.names import folded

_UNNAMED = """
    user users assistant i me my mine myself you your yours yourself he him his himself she her hers herself it its
    itself we us our ours ourselves they them their theirs themselves one someone somebody anyone anybody everyone
    everybody nobody this that these those who yo tu usted el ella nosotros ellos ellas ich du er sie es wir ihr mich
    dich je il elle nous vous ils elles moi toi eu voce ele ela
"""
_NO_NAMES = frozenset(_UNNAMED.split()) | {"the user", "the assistant"}
"""What people and models call someone without naming them."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What an extraction's names stand for.

    `ids` gives an entity's id by folded name. `drafts` are the entities among them that are to be made, by id, and
    `aliases` new names of those that are known. `names` are all names of each, its own first.
    """

    ids: Mapping[str, str] = field(default_factory=dict)
    drafts: Mapping[str, EntityDraft] = field(default_factory=dict)
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def id_of(self, name: str) -> str | None:
        """The entity that a name stands for."""
        return self.ids.get(folded(name))

    def ids_of(self, names: Iterable[str]) -> tuple[str, ...]:
        """The entities that some names stand for, each once."""
        return tuple(dict.fromkeys(id for id in map(self.id_of, names) if id is not None))

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

    They are the same if a name and the type are: its own name before what it is also called. `known` are the entities
    that have one of the names, with what merged ones were merged into; more do no harm.
    """
    book = _Book(known)
    ids: dict[str, str] = {}
    drafts: dict[str, EntityDraft] = {}
    aliases: dict[str, tuple[str, ...]] = {}
    called: dict[str, tuple[str, ...]] = {entity.id: (entity.canonical_name, *entity.aliases) for entity in known}
    for group in _groups(extracted):
        found = book.find(group)
        if found is None:
            draft = _draft(group, book)
            drafts[draft.id] = draft
            called[draft.id] = (draft.canonical_name, *draft.aliases)
            id = draft.id
        else:
            id = found.id
            new = book.free(group.names, group.type)
            if new:
                aliases[id] = new
                called[id] = (*called[id], *new)
        for name in group.names:
            ids.setdefault(folded(name), id)
    for entity in book.standing:
        for name in called[entity.id]:
            ids.setdefault(folded(name), entity.id)
    return Resolved(ids, drafts, aliases, called)


@dataclass(slots=True)
class _Group:
    """Extracted entities that are one, by their names."""

    type: EntityType
    names: tuple[str, ...]
    description: str | None

    @property
    def keys(self) -> set[str]:
        return {folded(name) for name in self.names}


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
        """The entity that a group is: one of its first name rather than of its others."""
        places = [(group.type, folded(name)) for name in group.names]
        for place in places:
            if found := self._own.get(place) or self._also.get(place):
                return found
        return None

    def free(self, names: Iterable[str], type: EntityType) -> tuple[str, ...]:
        """The names that no known entity of that type has."""
        return tuple(
            name for name in names if not any((type, folded(name)) in taken for taken in (self._own, self._also))
        )


def _standing(entity: Entity, by_id: Mapping[str, Entity]) -> Entity | None:
    """What stands for an entity now; None if that was not given."""
    seen: Entity | None = entity
    for _ in by_id:
        if seen is None or seen.status is EntityStatus.ACTIVE:
            return seen
        seen = by_id.get(seen.merged_into or "")
    return seen if seen is not None and seen.status is EntityStatus.ACTIVE else None


def _groups(extracted: Sequence[ExtractedEntity]) -> Iterator[_Group]:
    """Extracted entities of one type that share a name are one, in the order of the first of each."""
    groups: list[_Group] = []
    for entity in extracted:
        named = _distinct((entity.name, *entity.aliases))
        if not named:
            continue
        made = _Group(entity.type, named, entity.description)
        shared = [group for group in groups if group.type is made.type and group.keys & made.keys]
        if not shared:
            groups.append(made)
            continue
        first = shared[0]
        for other in (*shared[1:], made):
            first.names = _distinct((*first.names, *other.names))
            first.description = first.description or other.description
        groups = [group for group in groups if group is first or group not in shared]
    yield from groups


def _draft(group: _Group, book: _Book) -> EntityDraft:
    return EntityDraft(
        id=new_id("ent"),
        type=group.type,
        canonical_name=group.names[0],
        description=group.description,
        aliases=book.free(group.names[1:], group.type),
    )


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
