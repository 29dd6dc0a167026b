"""Values that stores accept and return: drafts, claims, filters, changes and results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

from tellback.types.access import ApiKey, Scope
from tellback.types.conversations import MessageData, MessageDraft, SessionData, StoredMessage
from tellback.types.jobs import Job, UsageRecord
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Citation, Entity, EntityType
from tellback.types.messages import Message


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """A session's state after a turn, and the turn's new messages. `tool_calls` belong to the last message."""

    session: SessionData
    messages: tuple[MessageData, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TurnDraft:
    """Messages to append to a turn.

    The turn is `turn_id`; with `joins`, it is the conversation's latest turn, if there is one. With `starts`, it counts
    as a new turn.
    """

    turn_id: str
    messages: Sequence[MessageDraft]
    starts: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The stored messages, one for each draft, and the turn counts of the conversation and its summary."""

    messages: tuple[StoredMessage, ...]
    turns: int
    summarized_turns: int


@dataclass(frozen=True, slots=True)
class TurnClaim:
    """A request to run a turn: the time, and when the claim expires unless extended (seconds since 1970).

    `claim_id` identifies this claim, and begins with the instance id of the store that made it.
    """

    turn_id: str
    claim_id: str
    now: float
    until: float
    evict: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The claim of a turn succeeded.

    `history` is the history sent to the model. It ends with `user_message`, if there is one. `later_messages` are the
    stored messages after a user message that the log already contained.
    """

    turn_id: str
    user_message: StoredMessage | None
    history: tuple[Message, ...]
    later_messages: tuple[StoredMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnBusy:
    """Another turn is running."""

    turn_id: str
    claim_id: str


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of one run of a job.

    `run` is the value of the job's `runs` when it was claimed: if another run has taken over the lease, the end is
    ignored.
    """

    job_id: str
    run: int
    result: Mapping[str, Any] = field(default_factory=dict)
    usage: Sequence[UsageRecord] = ()


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """The result of dispatching new events: the jobs made, and whether there may be more events."""

    jobs: tuple[Job, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class AtomDraft:
    """An atom to add.

    `origin` identifies what the atom was made from: a space stores one atom for each origin. `vector` is
    half-precision, little-endian, made by `embedder`. `slot` is the subject and attribute ("user: home city"), `value`
    the value.
    """

    id: str
    text: str
    category: Category
    valid_from: datetime
    importance: int = 3
    confidence: float = 1.0
    valid_to: datetime | None = None
    source_conversation_id: str | None = None
    source_message_ids: tuple[str, ...] = ()
    entity_ids: tuple[str, ...] = ()
    origin: str | None = None
    embedder: str | None = None
    vector: bytes | None = None
    other_sources: tuple[Citation, ...] = ()
    slot: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class EntityDraft:
    """An entity to create."""

    id: str
    type: EntityType
    canonical_name: str
    description: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replacement:
    """An atom that replaces another."""

    old_id: str
    draft: AtomDraft


@dataclass(frozen=True, slots=True)
class AddedCitation:
    """A further citation of an atom that was stated again."""

    atom_id: str
    citation: Citation


AtomChange = AtomDraft | Replacement | AddedCitation


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Changes to a space in one transaction.

    They are entities to create, aliases to add to existing entities, and ordered changes of atoms. A later change may
    refer to an atom or entity that an earlier one creates.
    """

    entities: tuple[EntityDraft, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changes: tuple[AtomChange, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownAtom:
    """An atom with its slot and value, and the dates of the cited messages that are still stored."""

    atom: Atom
    slot: str | None = None
    value: str | None = None
    message_dates: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class AtomFilter:
    """Which atoms to list: those with a status that were known at `known_at` and had not ended at `valid_at`.

    With `must_have_started`, they must also have started by `valid_at`. With `before`, only atoms older than the one
    with this id are listed. They have any of the `categories`, and a category of that `kind`.
    """

    status: AtomStatus
    valid_at: datetime
    known_at: datetime | None = None
    must_have_started: bool = False
    categories: tuple[str, ...] = ()
    limit: int | None = None
    before: str | None = None
    kind: CategoryKind | None = None


class Row(Protocol):
    """A row of any engine: `sqlite3.Row`, asyncpg's `Record`, or an equivalent.

    It is read by column name, and iterating over it yields the values in the order of the columns.
    """

    def __getitem__(self, name: str, /) -> Any: ...

    def __iter__(self) -> Iterator[Any]: ...

    def keys(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class SpaceChanges:
    """Changes in a space after a version, as stored rows for `tellback.stores.rows` to read by column name.

    `atoms` are ordered by seq. `validity_ends` are (seq, known_at, valid_to): all ends of each of these atoms.
    `vectors` are (seq, vector).
    """

    version: int
    last_seq: int
    atoms: Sequence[Row] = ()
    validity_ends: Sequence[Sequence[int]] = ()
    vectors: Sequence[Sequence[Any]] = ()
    entities: Sequence[Entity] = ()


@dataclass(frozen=True, slots=True)
class SpaceSearch:
    """A search in a space that is too large to load. Times are in microseconds.

    It finds atoms with these statuses and categories, known by `known_at`, started by `started_by`, not ended by
    `ends_after`, and valid at some time from `since` to `until`. They match if they contain any of the `words`, are
    near the `vector`, or are about an entity with one of these ids or folded `names`. Each criterion finds at most
    `limit` atoms.
    """

    limit: int
    known_at: int
    started_by: int
    ends_after: int
    since: int
    until: int
    statuses: tuple[str, ...] = ("ACTIVE",)
    categories: tuple[str, ...] | None = None
    min_importance: int = 0
    words: tuple[str, ...] = ()
    vector: bytes | None = None
    embedder: str = ""
    entity_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An API key with the digest of its secret."""

    key: ApiKey
    digest: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The right to answer a request. `claim_token` is required to finish or abandon it."""

    claim_token: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The stored response to a request."""

    status: int
    content_type: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)


Collection = Literal[
    "conversations",
    "messages",
    "sessions",
    "spaces",
    "atoms",
    "entities",
    "bindings",
    "jobs",
    "usage",
    "api_keys",
    "idempotent_responses",
    "events",
]
COLLECTIONS: tuple[Collection, ...] = get_args(Collection)
"""The collections of a user's data, in the order of an export."""

USER_ERASED = "user.erased"
"""The type of the event that reports an erasure."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The result of an erasure: the number of deleted rows per table, and the ids of deleted jobs."""

    counts: Mapping[str, int]
    job_ids: tuple[str, ...] = ()


def erasure_subject(scope: Scope) -> str:
    """Return the hash that stands for the user in the event of an erasure. It can be computed from a known scope.

    >>> erasure_subject(Scope("acme", "support", "maya"))[:16]
    'f66d4fb83f8998cb'
    """
    identity = json.dumps([scope.tenant_id, scope.app_id, scope.user_id], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()
