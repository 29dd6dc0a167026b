"""The ports of conversations: the conversation log with its turn claims, and agents' sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tellback.types.access import Scope
from tellback.types.conversations import (
    Conversation,
    MessageData,
    MessageDraft,
    SessionData,
    SessionStatus,
    StoredMessage,
)
from tellback.types.messages import Message


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """Where a session stands after a turn, and what was said in it; `tool_calls` go with the last of that."""

    session: SessionData
    messages: tuple[MessageData, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()


class AgentSessions(Protocol):
    """Agents' sessions. What is said in them is in the log: in the user's conversations of that `session_id`.

    - `find_scope` gives the scope of the user whose session it is, or None. Session ids are unique in an app.
    - `create`, `get`, `find_active`, `list_sessions`, `set_status` are as in `SessionRepository`; completing and
      abandoning also closes the session's open conversations, in the same transaction. `delete` forgets where it stood
      and closes them; what was said stays in the log, and is no longer the session's.
    - `save` is as in `PersistenceAdapter`: the session and its messages in one transaction. They are appended to the
      session's open conversation, or to `conversation` if it has none. An id that is another user's raises
      `NotFoundError`. `add_messages` appends without a turn.
    - `messages` gives what was said: messages that users see, in the order of the log, and those that were added here.
    """

    async def find_scope(self, tenant_id: str, app_id: str, id: str) -> Scope | None: ...

    async def create(self, scope: Scope, session: SessionData) -> None: ...

    async def get(self, scope: Scope, id: str) -> SessionData | None: ...

    async def find_active(self, scope: Scope, agent_name: str | None) -> SessionData | None: ...

    async def list_sessions(self, scope: Scope, *, limit: int, before: SessionData | None) -> list[SessionData]: ...

    async def set_status(
        self, scope: Scope, id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None: ...

    async def delete(self, scope: Scope, id: str, *, now: datetime) -> bool: ...

    async def save(
        self,
        scope: Scope,
        session: SessionData,
        messages: Sequence[MessageData],
        conversation: Conversation,
    ) -> SessionData: ...

    async def add_messages(
        self, scope: Scope, messages: Sequence[MessageData], conversation: Conversation, *, at: datetime
    ) -> list[MessageData]: ...

    async def messages(
        self, scope: Scope, id: str, *, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]: ...


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


class ConversationLog(Protocol):
    """Conversations and their messages: append-only, in scope, every change with its event in the same transaction.

    - `create` stores a conversation (open, empty); its id must be new.
    - `find_in_session` gives the newest open conversation of a namespace and session id, or None; `find_or_create` the
      one of the same namespace and session, or creates this one. Of those who ask at once, one creates. `list_due`
      gives the ids of a user's open conversations whose `close_after` is past.
    - `get` gives None for an unknown id. `list_conversations` gives the newest first, those before the id `before`.
    - `close` closes an open conversation with one `conversation.closed` event; closing again changes nothing and gives
      the conversation as it is. `close_stale` closes those without a change since `idle_since` and without a running
      turn, for one scope or, with None, for all; without `idle_since`, those that are due. It gives those it
      closed.
    - `append` stores all drafts or none, in order, at the next `seq`s, dense from 1, whoever else is writing, and one
      `message.appended` event each. A draft whose idempotency key the conversation already holds is not stored again:
      the stored message takes its place, and the other drafts join its turn. With `release_claim_id`, that claim ends
      in the same transaction. With `required_claim_id`, nothing is stored unless that claim's turn runs.
      With `session`, where an agent's session stands is saved with it (`AgentSessions.save`, whose messages are these).
      Raises `NotFoundError`, `ConversationClosedError`, `TurnConflictError`, `SessionConflictError`.
    - `messages` gives what lies between the seqs `after` and `before` (exclusive), oldest first: the last `limit` of
      them, or the first ones with `from_start`. Raises `NotFoundError`.
    - `begin_turn` claims the conversation, appends the user's message and reads the tail, all in one transaction; or
      gives `TurnBusy` and changes nothing. Without a message the last turn goes on, also in a conversation that was
      closed. A claim past its time, or with the id `evict`, is taken over. `end_turn` gives it up and `extend_turn`
      prolongs it, if it is still held.
    - `list_across_users` gives conversations across users in the order of ids, after one; with `unsummarized`, those
      that are so many turns past their summary.
    - `save_summary` replaces the rolling summary if it still reaches to `expected_seq`, and gives None if it does not.
    """

    async def create(self, scope: Scope, conversation: Conversation) -> Conversation: ...

    async def find_in_session(self, scope: Scope, namespace: str, session_id: str | None) -> Conversation | None: ...

    async def find_or_create(self, scope: Scope, conversation: Conversation) -> Conversation: ...

    async def list_due(self, scope: Scope, *, now: datetime) -> list[str]: ...

    async def get(self, scope: Scope, id: str) -> Conversation | None: ...

    async def list_conversations(
        self, scope: Scope, *, namespace: str | None, status: str | None, limit: int | None, before: str | None
    ) -> list[Conversation]: ...

    async def close(self, scope: Scope, id: str, *, now: datetime) -> Conversation: ...

    async def close_stale(
        self, scope: Scope | None, *, idle_since: datetime | None, now: datetime
    ) -> list[Conversation]: ...

    async def append(
        self,
        scope: Scope,
        id: str,
        turns: Sequence[TurnDraft],
        *,
        now: datetime,
        release_claim_id: str | None = None,
        required_claim_id: str | None = None,
        session: SessionTurn | None = None,
    ) -> AppendResult: ...

    async def message(self, scope: Scope, id: str) -> StoredMessage | None: ...

    async def messages(
        self,
        scope: Scope,
        id: str,
        *,
        limit: int | None = None,
        after: int = 0,
        before: int | None = None,
        include_internal: bool = False,
        include_hidden: bool = False,
        from_start: bool = False,
    ) -> list[StoredMessage]: ...

    async def begin_turn(
        self, scope: Scope, id: str, claim: TurnClaim, draft: MessageDraft | None, *, tail_limit: int, now: datetime
    ) -> TurnStarted | TurnBusy: ...

    async def end_turn(self, scope: Scope, id: str, claim_id: str) -> None: ...

    async def extend_turn(self, scope: Scope, id: str, claim_id: str, until: float) -> None: ...

    async def save_summary(
        self, scope: Scope, id: str, summary: str, *, until_seq: int, turns: int, expected_seq: int, now: datetime
    ) -> Conversation | None: ...

    async def list_across_users(
        self,
        *,
        tenant_id: str | None,
        app_id: str | None,
        user_id: str | None,
        namespace: str | None,
        after: str,
        limit: int,
        unsummarized: int | None = None,
    ) -> list[tuple[Scope, str]]: ...
