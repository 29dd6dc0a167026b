"""The values that a store takes and gives: drafts, claims, filters, changes and results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
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
    """Where a session stands after a turn, and what was said in it; `tool_calls` go with the last of that."""

    session: SessionData
    messages: tuple[MessageData, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class TurnDraft:
    """Messages to append to a turn: that of `turn_id`, or with `joins` the conversation's latest one, if it has any.

    `starts` counts it as a new turn.
    """

    turn_id: str
    messages: Sequence[MessageDraft]
    starts: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The stored messages, one for each draft, and how many turns the conversation and its summary now have."""

    messages: tuple[StoredMessage, ...]
    turns: int
    summarized_turns: int


@dataclass(frozen=True, slots=True)
class TurnClaim:
    """A wish to run a turn: when, and until when the claim holds unless extended (seconds since 1970).

    `claim_id` names this one claim, and begins with the name of the store it was made on.
    """

    turn_id: str
    claim_id: str
    now: float
    until: float
    evict: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The turn is claimed. `history` is what a model is sent, and ends with `user_message`, if there is one;
    `later_messages` is what the log holds after a user message that was already there."""

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
    """The end of one run: `run` is the job's `runs` when it was claimed, so that one whose lease was lost to another
    ends nothing."""

    job_id: str
    run: int
    result: Mapping[str, Any] = field(default_factory=dict)
    usage: Sequence[UsageRecord] = ()


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """What a look at new events gave: jobs, and whether there may be more events."""

    jobs: tuple[Job, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class AtomDraft:
    """An atom about to be added.

    `origin` names what it was made from: a space holds one atom of each. `vector` is half-precision, little-endian, and
    made by `embedder`. `slot` names what it says something about ("user: home city"), `value` what it says.
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
    """An entity about to be made."""

    id: str
    type: EntityType
    canonical_name: str
    description: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replacement:
    """An atom to take another's place."""

    old_id: str
    draft: AtomDraft


@dataclass(frozen=True, slots=True)
class AddedCitation:
    """An atom was said again."""

    atom_id: str
    citation: Citation


AtomChange = AtomDraft | Replacement | AddedCitation


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What is to change in a space, all at once: entities to make, names that known ones are also called by, and
    atoms, in their order. A later change may name what an earlier one makes."""

    entities: tuple[EntityDraft, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changes: tuple[AtomChange, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownAtom:
    """An atom with what it says about what, and when the messages that it cites were said, as far as they are kept."""

    atom: Atom
    slot: str | None = None
    value: str | None = None
    message_dates: tuple[datetime, ...] = ()


@dataclass(frozen=True, slots=True)
class AtomFilter:
    """Which atoms to list: those of a status that were known at `known_at` and were not over at `valid_at`.

    With `must_have_started`, they must also have begun by then. `before` is the id to go on from, `categories` any of
    these, `kind` that of their categories.
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
    """A row of any engine: `sqlite3.Row`, asyncpg's `Record`, or a dictionary made from one."""

    def __getitem__(self, name: str, /) -> Any: ...

    def keys(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class SpaceChanges:
    """What changed in a space after a version: rows as the store keeps them, which
    `tellback.stores.rows` reads by the names of their columns.

    `atoms` come in the order of their seq; `validity_ends` are (seq, known_at, valid_to), all there are of each of
    these atoms, `vectors` (seq, vector).
    """

    version: int
    last_seq: int
    atoms: Sequence[Row] = ()
    validity_ends: Sequence[Sequence[int]] = ()
    vectors: Sequence[Sequence[Any]] = ()
    entities: Sequence[Entity] = ()


@dataclass(frozen=True, slots=True)
class SpaceSearch:
    """What to look for in a space that is too large to be held, by moments in microseconds.

    Atoms of these statuses and categories, known by `known_at`, begun by `started_by`, not ended by `ends_after`, that
    held at some moment from `since` to `until`: those with any of the `words`, near the `vector`, about an entity of
    these ids or folded `names`; at most `limit` of each.
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
    """A key with the digest of its secret."""

    key: ApiKey
    digest: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The request is ours to answer: `claim_token` says so when it is finished or abandoned."""

    claim_token: str


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """What a request was answered."""

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
"""What a user's data consists of, in the order it is handed out."""

USER_ERASED = "user.erased"
"""The event that tells of an erasure."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """What an erasure deleted: how many of each, and the ids of the jobs among it."""

    counts: Mapping[str, int]
    job_ids: tuple[str, ...] = ()


def erasure_subject(scope: Scope) -> str:
    """What the event of an erasure names in place of the user: whoever knows the user can tell that it is meant.

    >>> erasure_subject(Scope("acme", "support", "maya"))[:16]
    'f66d4fb83f8998cb'
    """
    identity = json.dumps([scope.tenant_id, scope.app_id, scope.user_id], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(identity.encode()).hexdigest()
