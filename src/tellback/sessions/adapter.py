"""The protocols of a session adapter: what a database must do to store an agent's sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from tellback.types.conversations import MessageData, SessionData, SessionStatus


class SessionRepository(Protocol):
    """Sessions of one database.

    - `create` stores a session whose id is new; otherwise it raises `SessionConflictError`.
    - `get` gives None for an id that is not there, or no longer.
    - `find_active` gives the active session of a user, and of an agent if one is named, that was created last.
    - `list_by_user` gives a user's sessions, those created last first (then the greater id first): at most `limit`,
      those behind `before`.
    - `update_status` changes the status and when it was completed, and gives the session as it is then, or None. It
      leaves the version as it is: a turn that is running can still be saved, and does not change the status back.
    - `delete` deletes a session and its messages, and says whether it was there.
    """

    async def create(self, session: SessionData) -> SessionData: ...

    async def get(self, session_id: str) -> SessionData | None: ...

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None: ...

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]: ...

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None: ...

    async def delete(self, session_id: str) -> bool: ...


class MessageRepository(Protocol):
    """The messages of those sessions.

    - `add` appends messages to one session, all or none, in order, and counts them in it (`message_count`,
      `last_message_at`, `updated_at`; not its version). It gives them with their positions. Raises `NotFoundError` if
      there is no such session. An id of a message that is stored already may be refused (`InvalidArgumentError`).
    - `list_by_session` gives messages in the order they were added: the last `limit` of those before the position
      `before`, or the first `limit` of those after the position `after`.
    """

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]: ...

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]: ...


@runtime_checkable
class PersistenceAdapter(Protocol):
    """A database that keeps sessions and their messages.

    - `initialize` makes what is missing: tables, indexes, migrations. It may be called twice, and by many at once.
    - `disconnect` gives up the connections it opened itself; it may be called twice. A client that was passed in is
      its owner's to close. After `initialize` it works again.
    - `save` stores a session after a turn and the messages of that turn, **in one step**: all of it or nothing. It
      raises `SessionConflictError` unless the version that is stored is the one before the session's; a session that
      is not there has version 0. Of a session that is there, `user_id` and `agent_name` are kept if they are set, and
      `status`, `completed_at`, `created_at` are kept always; `message_count` and `last_message_at` are counted on. It
      gives the session as it is stored then.
    - `purge_expired` deletes what is past its time to live, and says how many sessions and messages that were; where
      the database does that by itself, it need not do anything. What is past its time is never given, purged or not:
      a session `session_ttl` after its last change, a message `message_ttl` after it was stored.

    What it is given is plain: ids are texts that are not empty, `collected_data`, `tool_calls` and `event` are JSON,
    moments are aware and in UTC. It gives the same back exactly, to the microsecond. Ids are checked in every method:
    anything but a text raises `InvalidArgumentError`. A database that cannot be reached raises `StoreUnavailableError`,
    and works again by itself when it is back. Use before `initialize` raises `StoreClosedError`.

    >>> from tellback.sessions import InMemoryAdapter
    >>> isinstance(InMemoryAdapter(), PersistenceAdapter)
    True
    """

    @property
    def session_repository(self) -> SessionRepository: ...

    @property
    def message_repository(self) -> MessageRepository: ...

    async def initialize(self) -> None: ...

    async def disconnect(self) -> None: ...

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData: ...

    async def purge_expired(self) -> int: ...
