"""The values of memory: spaces, atoms, entities, the results of recall, and the working context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from tellback.types.access import Scope, Scoped
from tellback.types.messages import Message, message_text

MIN_DECAY_WEIGHT = 0.1
"""The lowest decay weight: the share of its weight that an old memory keeps."""


class CategoryKind(StrEnum):
    """The kind of a memory, which determines how fast its weight decays.

    >>> CategoryKind.EPISODE.half_life.days
    30
    """

    FACT = "FACT"
    RULE = "RULE"
    INTENTION = "INTENTION"
    EPISODE = "EPISODE"
    PREFERENCE = "PREFERENCE"
    PATTERN = "PATTERN"

    @property
    def half_life(self) -> timedelta:
        """The time after which a memory has half of its weight."""
        return _HALF_LIVES[self]


_HALF_LIVES = {
    CategoryKind.FACT: timedelta(days=365),
    CategoryKind.RULE: timedelta(days=365),
    CategoryKind.INTENTION: timedelta(days=90),
    CategoryKind.EPISODE: timedelta(days=30),
    CategoryKind.PREFERENCE: timedelta(days=365),
    CategoryKind.PATTERN: timedelta(days=365),
}


class EntityType(StrEnum):
    """The type of an entity.

    >>> EntityType("PERSON") is EntityType.PERSON
    True
    """

    PERSON = "PERSON"
    ORGANIZATION = "ORGANIZATION"
    PLACE = "PLACE"
    OBJECT = "OBJECT"
    CONCEPT = "CONCEPT"
    EVENT = "EVENT"
    AGREEMENT = "AGREEMENT"


class AtomStatus(StrEnum):
    """Whether an atom is active (recalled), archived, or deleted.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     atom = memory.add_atom(memory.create_space("life").id, "Maya keeps bees.")
    ...     archived = memory.archive_atom(atom.id)
    >>> atom.status is AtomStatus.ACTIVE, archived.status is AtomStatus.ARCHIVED
    (True, True)
    """

    ACTIVE = "ACTIVE"
    ARCHIVED = "ARCHIVED"
    DELETED = "DELETED"


class EntityStatus(StrEnum):
    """Whether an entity is active or was merged into another.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     space = memory.create_space("life")
    ...     ana, anita = [memory.create_entity(space.id, "PERSON", name) for name in ("Ana", "Anita")]
    ...     merged = memory.merge_entities(ana.id, anita.id)
    ...     alias = memory.get_entity(anita.id)
    >>> merged.status is EntityStatus.ACTIVE, alias.status is EntityStatus.MERGED
    (True, True)
    """

    ACTIVE = "ACTIVE"
    MERGED = "MERGED"


class RecallMode(StrEnum):
    """The kind of recall: by topic, by entity, or by time.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     space = memory.create_space("life")
    ...     result = memory.recall_timeline(space.id)
    >>> result.mode is RecallMode.TIMELINE
    True
    """

    BY_TOPIC = "BY_TOPIC"
    BY_ENTITY = "BY_ENTITY"
    TIMELINE = "TIMELINE"


@dataclass(frozen=True, slots=True)
class Category:
    """A category of memories: your own name for it, and its kind.

    >>> Category("allergy", "FACT")
    Category(name='allergy', kind=<CategoryKind.FACT: 'FACT'>)
    """

    name: str
    kind: CategoryKind

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", CategoryKind(str(self.kind).upper()))


TURN_CATEGORY = Category("turn", CategoryKind.EPISODE)
"""The category of messages that are stored verbatim, prefixed with their speaker."""


@dataclass(frozen=True, slots=True)
class MemorySpace(Scoped):
    """A snapshot of a memory space: a named part of one user's memory.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     space = tb.user("maya").memory.create_space("life", {"about": "home"})
    >>> space.name, space.metadata
    ('life', {'about': 'home'})
    """

    id: str
    scope: Scope
    name: str
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    atom_count: int = 0


@dataclass(frozen=True, slots=True)
class Citation:
    """The source of a memory: a conversation and messages in it.

    >>> Citation("conv_1", ("msg_1", "msg_2")).message_ids
    ('msg_1', 'msg_2')
    """

    conversation_id: str
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Atom(Scoped):
    """A snapshot of an atom: one remembered fact.

    It is true from `valid_from` until `valid_to` (None if no end is known). It was recorded as current from
    `created_at` until `superseded_at` (None if it still is). `source_conversation_id` and `source_message_ids`
    are its source, `other_sources` are later confirmations, and `citations` contains all of them. `supersedes` and
    `superseded_by` are the ids of the previous and the next atom of a chain.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     space = memory.create_space("life")
    ...     atom = memory.add_atom(space.id, "Maya lives in Lisbon.", ("home", "FACT"), valid_from="2026-03-01T00:00Z")
    >>> atom.text, atom.category.name, f"{atom.valid_from:%d %B %Y}", atom.valid_to
    ('Maya lives in Lisbon.', 'home', '01 March 2026', None)
    """

    id: str
    memory_space_id: str
    scope: Scope
    text: str
    category: Category
    valid_from: datetime
    created_at: datetime
    updated_at: datetime
    importance: int = 3
    confidence: float = 1.0
    valid_to: datetime | None = None
    superseded_at: datetime | None = None
    status: AtomStatus = AtomStatus.ACTIVE
    source_conversation_id: str | None = None
    source_message_ids: tuple[str, ...] = ()
    entity_ids: tuple[str, ...] = ()
    supersedes: str | None = None
    superseded_by: str | None = None
    other_sources: tuple[Citation, ...] = ()

    @property
    def space_id(self) -> str:
        """The space it is in."""
        return self.memory_space_id

    @property
    def citations(self) -> tuple[Citation, ...]:
        """All sources, the first one first."""
        if self.source_conversation_id is None:
            return self.other_sources
        return (Citation(self.source_conversation_id, self.source_message_ids), *self.other_sources)


@dataclass(frozen=True, slots=True)
class Entity(Scoped):
    """A snapshot of an entity: a person, a place or another thing that memories mention.

    `merged_into` is the id of the entity that replaced it, if `status` is MERGED.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     entity = memory.create_entity(memory.create_space("life").id, "PERSON", "Ana", "Maya's sister")
    >>> entity.canonical_name, entity.type.value, entity.description
    ('Ana', 'PERSON', "Maya's sister")
    """

    id: str
    memory_space_id: str
    scope: Scope
    type: EntityType
    canonical_name: str
    created_at: datetime
    updated_at: datetime
    description: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict, hash=False)
    aliases: tuple[str, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    merged_into: str | None = None
    first_seen_at: datetime | None = None
    last_seen_at: datetime | None = None
    atom_count: int = 0

    @property
    def space_id(self) -> str:
        """The space it is in."""
        return self.memory_space_id


class Explanation(dict[str, float]):
    """The contribution of each signal to a hit's score, the largest first. `str()` renders a small table.

    The contributions add up to the log-odds of the score: `score == 1 / (1 + exp(-sum(parts)))`.

    >>> print(Explanation({"same words": 2.0, "age": -0.5}))
    same words  +2.00
    age         -0.50
    """

    def __str__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:{width}}  {value:+.2f}" for name, value in self.items())


@dataclass(frozen=True, slots=True)
class RecallHit:
    """A recalled atom.

    `score` is from 0 to 1 and orders the hits of a topic. `decay_weight` is the weight that remains at its age.
    `entity_match_bonus` is above 1 if the query mentions an entity of the atom. `context` contains the surrounding
    turns, if requested.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     space = memory.create_space("life")
    ...     atom = memory.add_atom(space.id, "Maya keeps bees.")
    ...     [hit] = memory.recall_by_topic(space.id, "Who keeps bees?").hits
    >>> hit.atom.text, 0 < hit.score <= 1
    ('Maya keeps bees.', True)
    """

    atom: Atom
    score: float
    decay_weight: float = 1.0
    entity_match_bonus: float = 1.0
    context: tuple[Atom, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict, hash=False, repr=False)

    def explain(self) -> Explanation:
        """Return the contribution of each signal to the score."""
        parts = [part for part in self.parts.items() if part[1]]
        return Explanation(sorted(parts, key=lambda part: -abs(part[1])))


@dataclass(frozen=True, slots=True)
class RecallResult:
    """The result of a recall: the hits, the number of atoms considered, and the time it took.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     space = memory.create_space("life")
    ...     atom = memory.add_atom(space.id, "Maya keeps bees.")
    ...     result = memory.recall_by_topic(space.id, "Who keeps bees?")
    >>> [hit.atom.text for hit in result.hits], result.total_candidates
    (['Maya keeps bees.'], 1)
    """

    mode: RecallMode
    hits: tuple[RecallHit, ...]
    total_candidates: int
    latency_ms: float

    def __iter__(self) -> Iterator[RecallHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __bool__(self) -> bool:
        return True  # a result without hits is still a result

    @property
    def atoms(self) -> list[Atom]:
        """The atoms of the hits, in the same order."""
        return [hit.atom for hit in self.hits]


def decay_weight(kind: CategoryKind, age: timedelta) -> float:
    """Return the weight that a memory has at a given age, between `MIN_DECAY_WEIGHT` and 1.

    >>> decay_weight(CategoryKind.EPISODE, timedelta(days=30))
    0.5
    """
    halvings: float = max(age, timedelta(0)) / kind.half_life
    return float(max(MIN_DECAY_WEIGHT, 0.5**halvings))


@dataclass(frozen=True, slots=True)
class WorkingContext:
    """The memories, summary and recent turns for a prompt, within a token budget. `str(context)` is the block.

    - `context_block` is the rendered template: a system prompt, or the beginning of one.
    - `messages` is the same as chat messages: a system message, then the recent turns with tool calls and results.
    - `atoms_used` are the memories in it, always-on memories first; `hits` are the recalled ones among them.
    - The budget applies to the block and to the messages. `tokens_estimated` counts the block, or the messages if the
      template renders messages. `over_budget` is true if the summary and the always-on memories alone exceed the
      budget; then there are no turns and no hits.
    - `turns_used` and `turns_dropped` count the recent turns, `hits_dropped` the hits that did not fit.
    - `recall_query` is the query, or None without recall. `remembers` is true if it contains a summary or a memory.

    >>> str(WorkingContext("Today is Monday.", messages=(), atoms_used=(), tokens_estimated=4))
    'Today is Monday.'
    """

    context_block: str
    messages: tuple[Message, ...]
    atoms_used: tuple[Atom, ...]
    tokens_estimated: int
    over_budget: bool = False
    hits: tuple[RecallHit, ...] = ()
    turns_used: int = 0
    turns_dropped: int = 0
    hits_dropped: int = 0
    recall_query: str | None = None
    remembers: bool = False

    @property
    def system(self) -> str:
        """The block without the recent turns: a system prompt to send before these turns."""
        return message_text(self.messages[0]) if self.messages and self.messages[0].role == "system" else ""

    def __str__(self) -> str:
        return self.context_block
