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
"""However old a memory is, it keeps this much of its weight."""


class CategoryKind(StrEnum):
    """What sort of thing a memory is, which decides how fast it fades.

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
        """How long it takes to lose half of its weight."""
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
    """What an entity is."""

    PERSON = "PERSON"
    ORGANIZATION = "ORGANIZATION"
    PLACE = "PLACE"
    OBJECT = "OBJECT"
    CONCEPT = "CONCEPT"
    EVENT = "EVENT"
    AGREEMENT = "AGREEMENT"


class AtomStatus(StrEnum):
    """Whether an atom is recalled, put aside, or forgotten."""

    ACTIVE = "ACTIVE"
    ARCHIVED = "ARCHIVED"
    DELETED = "DELETED"


class EntityStatus(StrEnum):
    """Whether an entity stands for itself or was merged into another."""

    ACTIVE = "ACTIVE"
    MERGED = "MERGED"


class RecallMode(StrEnum):
    """How something was recalled."""

    BY_TOPIC = "BY_TOPIC"
    BY_ENTITY = "BY_ENTITY"
    TIMELINE = "TIMELINE"


@dataclass(frozen=True, slots=True)
class Category:
    """Your own name for a sort of memory, and its kind.

    >>> Category("allergy", "FACT")
    Category(name='allergy', kind=<CategoryKind.FACT: 'FACT'>)
    """

    name: str
    kind: CategoryKind

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", CategoryKind(str(self.kind).upper()))


TURN_CATEGORY = Category("turn", CategoryKind.EPISODE)
"""The category of what was said, kept word for word after who said it."""


@dataclass(frozen=True, slots=True)
class MemorySpace(Scoped):
    """A named part of one user's memory, as it stood when it was read."""

    id: str
    scope: Scope
    name: str
    created_at: datetime
    updated_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    atom_count: int = 0


@dataclass(frozen=True, slots=True)
class Citation:
    """Where something was said: a conversation, and the messages in it."""

    conversation_id: str
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Atom(Scoped):
    """One remembered thing, as it stood when it was read.

    `valid_from` and `valid_to` say when it was true (`valid_to` None: still), `created_at` and `superseded_at` when
    that was known. `source_conversation_id` and `source_message_ids` cite where it comes from, `other_sources` where
    it was said again, and `citations` is all of these. `supersedes` and `superseded_by` are the ids of the atoms before
    and after it, if it was replaced.
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
        """Everywhere it was said, the first place first."""
        if self.source_conversation_id is None:
            return self.other_sources
        return (Citation(self.source_conversation_id, self.source_message_ids), *self.other_sources)


@dataclass(frozen=True, slots=True)
class Entity(Scoped):
    """A person, a place or another thing that memories are about, as it stood when it was read.

    `merged_into` is the entity that took its place, if `status` is MERGED.
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
    """What each part added to a hit's score, the largest first; as a text, a small table.

    The parts add up to the score's log-odds: `score == 1 / (1 + exp(-sum(parts)))`.

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

    `score` is from 0 to 1 and orders the hits of a topic. `decay_weight` is what its age left of it, and
    `entity_match_bonus` is above 1 when the query names something the atom is about. `context` holds the turns around
    it, when they were asked for.
    """

    atom: Atom
    score: float
    decay_weight: float = 1.0
    entity_match_bonus: float = 1.0
    context: tuple[Atom, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict, hash=False, repr=False)

    def explain(self) -> Explanation:
        """What the score is made of."""
        parts = [part for part in self.parts.items() if part[1]]
        return Explanation(sorted(parts, key=lambda part: -abs(part[1])))


@dataclass(frozen=True, slots=True)
class RecallResult:
    """What was recalled: the hits, how many atoms were considered for them, and how long it took."""

    mode: RecallMode
    hits: tuple[RecallHit, ...]
    total_candidates: int
    latency_ms: float

    def __iter__(self) -> Iterator[RecallHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def __bool__(self) -> bool:
        return True  # an answer, also when nothing was found

    @property
    def atoms(self) -> list[Atom]:
        """The atoms of the hits, in their order."""
        return [hit.atom for hit in self.hits]


def decay_weight(kind: CategoryKind, age: timedelta) -> float:
    """What age leaves of a memory's weight.

    >>> decay_weight(CategoryKind.EPISODE, timedelta(days=30))
    0.5
    """
    halvings: float = max(age, timedelta(0)) / kind.half_life
    return float(max(MIN_DECAY_WEIGHT, 0.5**halvings))


@dataclass(frozen=True, slots=True)
class WorkingContext:
    """What a model should know before it answers, within a token budget. `str(context)` is the block.

    - `context_block` is the rendered template: a system prompt, or the beginning of one.
    - `messages` is the same as chat messages: a system message, then the kept turns with their tool calls and results.
    - `atoms_used` are the memories in it, the always-on ones first; `hits` are the recalled ones among them.
    - The budget holds for the block and for the messages. `tokens_estimated` counts the block, or the messages if the
      template is of that kind. `over_budget` says that the summary and the always-on memories alone are larger than the
      budget; there are then no turns and no hits.
    - `turns_used` and `turns_dropped` count the recent turns, `hits_dropped` the hits that had to go.
    - `recall_query` is what was recalled by, None if nothing was. `remembers` says that there is a summary or a memory
      in it.

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
        """The block without the turns: for a system prompt, where these follow as messages."""
        return message_text(self.messages[0]) if self.messages and self.messages[0].role == "system" else ""

    def __str__(self) -> str:
        return self.context_block
