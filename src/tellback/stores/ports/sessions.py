"""Agents' sessions in a store: the port."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tellback.types.conversations import Conversation
from tellback.types.scope import Scope
from tellback.types.sessions import MessageData, SessionData, SessionStatus


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """Where a session stands after a turn, and what was said in it; `tool_calls` go with the last of that."""

    session: SessionData
    messages: tuple[MessageData, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()


class AgentSessions(Protocol):
    """Agents' sessions. What is said in them is in the log: in the user's conversations of that `session_id`.

    - `owner` gives the user whose session an id is in an app, or None; the id of a session is taken once in an app.
    - `create`, `get`, `active`, `listed`, `set_status` are as in `SessionRepository`; completing and abandoning also
      closes the session's open conversations, in the same transaction. `delete` forgets where it stood and closes them;
      what was said stays in the log, and is no longer the session's.
    - `save` is as in `PersistenceAdapter`: the session and its messages in one transaction. They are appended to the
      session's open conversation, or to `conversation` if it has none. An id that is another user's raises
      `NotFoundError`. `add` appends without a turn.
    - `messages` gives what was said: messages that users see, in the order of the log, and those that were added here.
    """

    async def owner(self, tenant_id: str, app_id: str, id: str) -> Scope | None: ...

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
