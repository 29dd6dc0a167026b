"""What a store must do: one protocol for each aggregate, with its contract.

`SqliteStore` and `PostgresStore` keep these promises, and `recollect.testing.stores` checks them for any other store.

Common to all methods: they are safe to call from many tasks at once. A change is durable when its call returns, and
undone as a whole when it raises. An id of another scope is treated exactly like one that does not exist. What goes
wrong below is raised as a `StoreError`, never as the driver's own error; after one, the store goes on working as soon
as its cause is gone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from recollect.types.conversations import Conversation, Event, MessageDraft, StoredMessage
from recollect.types.memory import Atom, AtomStatus, Category, Entity, EntityType, MemorySpace
from recollect.types.messages import Message
from recollect.types.scope import Scope


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
class Appended:
    """The stored messages, one for each draft, and how many turns the conversation and its summary now have."""

    messages: tuple[StoredMessage, ...]
    turns: int
    summarized_turns: int


@dataclass(frozen=True, slots=True)
class TurnClaim:
    """A wish to run a turn: when, and until when the claim holds unless extended (seconds since 1970).

    `owner` names this one claim, and begins with the name of the store it was made on.
    """

    turn_id: str
    owner: str
    now: float
    until: float
    evict: str | None = None


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The turn is claimed. `history` is what a model is sent, and ends with `user_message`, if there is one; `later` is
    what the log holds after a user message that was already there."""

    turn_id: str
    user_message: StoredMessage | None
    history: tuple[Message, ...]
    later: tuple[StoredMessage, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnBusy:
    """Another turn is running."""

    turn_id: str
    owner: str


class ConversationLog(Protocol):
    """Conversations and their messages: append-only, in scope, every change with its event in the same transaction.

    - `create` stores a conversation (open, empty); its id must be new.
    - `get` gives None for an unknown id. `listed` gives the newest first, those before the id `before`.
    - `close` closes an open conversation with one `conversation.closed` event; closing again changes nothing and gives
      the conversation as it is. `close_stale` closes those without a change since `idle_since` and without a running
      turn, for one scope or, with None, for all; it gives those it closed.
    - `append` stores all drafts or none, in order, at the next `seq`s, dense from 1, whoever else is writing, and one
      `message.appended` event each. A draft whose idempotency key the conversation already holds is not stored again:
      the stored message takes its place, and the other drafts join its turn. With `release`, the running turn of that
      owner ends in the same transaction. Raises `NotFoundError`, `ConversationClosedError`.
    - `messages` gives what lies between the seqs `after` and `before` (exclusive), oldest first: the last `limit` of
      them, or the first ones with `from_start`. Raises `NotFoundError`.
    - `begin_turn` claims the conversation, appends the user's message and reads the tail, all in one transaction; or
      gives `TurnBusy` and changes nothing. A claim past its time, or of the owner to `evict`, is taken over. `end_turn`
      gives it up and `extend_turn` prolongs it, if it is still held.
    - `save_summary` replaces the rolling summary if it still reaches to `expected_seq`, and gives None if it does not.
    """

    async def create(self, scope: Scope, conversation: Conversation) -> Conversation: ...

    async def get(self, scope: Scope, id: str) -> Conversation | None: ...

    async def listed(
        self, scope: Scope, *, namespace: str | None, status: str | None, limit: int | None, before: str | None
    ) -> list[Conversation]: ...

    async def close(self, scope: Scope, id: str, *, now: datetime) -> Conversation: ...

    async def close_stale(self, scope: Scope | None, *, idle_since: datetime, now: datetime) -> list[Conversation]: ...

    async def append(
        self,
        scope: Scope,
        id: str,
        turns: Sequence[TurnDraft],
        *,
        now: datetime,
        release: str | None = None,
    ) -> Appended: ...

    async def message(self, scope: Scope, id: str) -> StoredMessage | None: ...

    async def messages(
        self,
        scope: Scope,
        id: str,
        *,
        limit: int | None = None,
        after: int = 0,
        before: int | None = None,
        internal: bool = False,
        hidden: bool = False,
        from_start: bool = False,
    ) -> list[StoredMessage]: ...

    async def begin_turn(
        self, scope: Scope, id: str, claim: TurnClaim, draft: MessageDraft | None, *, tail_limit: int, now: datetime
    ) -> TurnStarted | TurnBusy: ...

    async def end_turn(self, scope: Scope, id: str, owner: str) -> None: ...

    async def extend_turn(self, scope: Scope, id: str, owner: str, until: float) -> None: ...

    async def save_summary(
        self, scope: Scope, id: str, summary: str, *, until_seq: int, turns: int, expected_seq: int, now: datetime
    ) -> Conversation | None: ...


@dataclass(frozen=True, slots=True)
class AtomDraft:
    """An atom about to be added.

    `origin` names what it was made from: a space holds one atom of each. `vector` is half-precision, little-endian, and
    made by `embedder`.
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
class AtomFilter:
    """Which atoms to list: those of a status that were known at `known_at` and were not over at `valid_at`.

    With `begun`, they must also have begun by then. `before` is the id to go on from, `categories` any of these.
    """

    status: AtomStatus
    valid_at: datetime
    known_at: datetime | None = None
    begun: bool = False
    categories: tuple[str, ...] = ()
    limit: int | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True)
class SpaceChanges:
    """What changed in a space after a version: rows as the store keeps them, which `memory_rows` reads.

    `atoms` come in the order of their seq; `closings` are (seq, known_at, valid_to), all there are of each of these
    atoms, `vectors` (seq, vector).
    """

    version: int
    last_seq: int
    atoms: Sequence[Sequence[Any]] = ()
    closings: Sequence[Sequence[int]] = ()
    vectors: Sequence[Sequence[Any]] = ()
    entities: Sequence[Entity] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """What to look for in a space that is too large to be held, by moments in microseconds.

    Atoms of these statuses and categories, known by `known_at`, begun by `begun_at`, not over at `over_at`, that held
    at some moment from `since` to `until`: those with any of the `words`, near the `vector`, about an entity of these
    ids or folded `names`; at most `limit` of each.
    """

    limit: int
    known_at: int
    begun_at: int
    over_at: int
    since: int
    until: int
    statuses: tuple[str, ...] = ("ACTIVE",)
    categories: tuple[str, ...] | None = None
    least_importance: int = 0
    words: tuple[str, ...] = ()
    vector: bytes | None = None
    embedder: str = ""
    entity_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Memories(Protocol):
    """Spaces, atoms and entities: in scope, every change with its event in the same transaction.

    - A space that was deleted is unknown, and so is all that is in it.
    - `add` stores all drafts or none, numbered by `seq`, dense from 1 in each space, in the order of commits. A draft
      whose origin the space already holds is not stored again: the stored atom takes its place. Raises `NotFoundError`
      for the space or an entity. `originals` gives the stored atoms of some origins.
    - An atom holds at (valid_at, known_at) if it was created by `known_at`, has begun by `valid_at`, and no closing
      known by then ends it at or before `valid_at`. `supersede` adds the new atom and closes all atoms before it in the
      chain at its `valid_from`, from `now` on: once any of a chain has begun, exactly one holds. Raises
      `AtomSupersededError` if it was superseded already.
    - `set_status` changes nothing if it is so already. What was deleted stays so: it raises `NotFoundError`. A deleted
      atom leaves its chain: those before it end where those after it begin, and what was the last is so again.
    - `merge` gives the alias's names and atoms to the canonical entity; both are followed to what they were merged
      into. Merging again changes nothing.
    - `version` counts a space's changes. `changes` gives what changed after one (all there is, after -1), and may give
      more than once what changes while it reads. A space that ever had more than `most` atoms is not read: only the
      numbers come back.
    - `find` gives a part of a large space that is worth ranking, numbered as if it were all. `can_find` says whether
      the store can do that; where it cannot, a space is held whatever its size.
    - `to_embed` gives atoms (seq, text) without a vector by that embedder, the newest first, before a seq.
      `save_vectors` replaces that embedder's vectors of them, and leaves those of others until `forget_vectors` deletes
      all `but` one embedder's in a space.
    """

    @property
    def can_find(self) -> bool: ...

    async def create_space(self, scope: Scope, space: MemorySpace, *, once: bool = False) -> MemorySpace: ...

    async def space(self, scope: Scope, id: str) -> MemorySpace | None: ...

    async def spaces(self, scope: Scope, *, name: str | None = None) -> list[MemorySpace]: ...

    async def delete_space(self, scope: Scope, id: str, *, now: datetime) -> None: ...

    async def add(self, scope: Scope, space_id: str, drafts: Sequence[AtomDraft], *, now: datetime) -> list[Atom]: ...

    async def originals(self, scope: Scope, space_id: str, origins: Sequence[str]) -> dict[str, Atom]: ...

    async def atom(self, scope: Scope, id: str) -> Atom | None: ...

    async def atoms(self, scope: Scope, space_id: str, wanted: AtomFilter) -> list[Atom]: ...

    async def supersede(self, scope: Scope, old_id: str, draft: AtomDraft, *, now: datetime) -> Atom: ...

    async def set_status(self, scope: Scope, id: str, status: AtomStatus, *, now: datetime) -> Atom: ...

    async def create_entity(self, scope: Scope, space_id: str, draft: EntityDraft, *, now: datetime) -> Entity: ...

    async def entity(self, scope: Scope, id: str) -> Entity | None: ...

    async def entities(self, scope: Scope, space_id: str, *, type: EntityType | None = None) -> list[Entity]: ...

    async def entities_named(
        self, scope: Scope, space_id: str, name: str, *, type: EntityType | None = None
    ) -> list[Entity]: ...

    async def merge(self, scope: Scope, canonical_id: str, alias_id: str, *, now: datetime) -> Entity: ...

    async def version(self, scope: Scope, space_id: str) -> int: ...

    async def changes(
        self, scope: Scope, space_id: str, *, after: int, embedder: str, most: int | None = None
    ) -> SpaceChanges: ...

    async def find(self, scope: Scope, space_id: str, search: Search) -> SpaceChanges: ...

    async def to_embed(
        self, scope: Scope, space_id: str, *, embedder: str, before: int | None, limit: int
    ) -> list[tuple[int, str]]: ...

    async def save_vectors(
        self, scope: Scope, space_id: str, embedder: str, vectors: Sequence[tuple[int, bytes]], *, now: datetime
    ) -> None: ...

    async def forget_vectors(self, scope: Scope, space_id: str, *, but: str) -> None: ...

    async def all_spaces(self, *, after: str, limit: int) -> list[tuple[Scope, str]]: ...


class EventLog(Protocol):
    """Every change, in the order of commits.

    - `read` gives events after a position, oldest first, and the position to go on from, which is past those of other
      scopes. An event never appears before a position already given: whoever goes on misses none and gets none twice.
    - `latest` is the newest position, 0 when there is none.
    - `changes` yields whenever there may be something new, whichever process wrote it, and once at the start.
    """

    async def read(
        self,
        *,
        after: int,
        limit: int,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> tuple[list[Event], int]: ...

    async def latest(self) -> int: ...

    def changes(self) -> AsyncGenerator[None, None]: ...


class Store(Protocol):
    """A place where everything is kept. `owner` names this opening of it among all processes that use it.

    `open` migrates the schema to this release's version, or raises `SchemaVersionError` for a newer one; it and `close`
    may be called twice. `is_alive` says whether an owner still runs: False only when that is certain, None when nobody
    can tell.
    """

    url: str

    @property
    def owner(self) -> str: ...

    @property
    def conversations(self) -> ConversationLog: ...

    @property
    def memories(self) -> Memories: ...

    @property
    def events(self) -> EventLog: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def is_alive(self, owner: str) -> bool | None: ...
