"""The protocols of a session adapter: what a database must do to store an agent's sessions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from tellback.types.conversations import MessageData, SessionData, SessionStatus


class SessionRepository(Protocol):
    """The sessions of one database.

    - `create` stores a session with a new id; an existing id raises `SessionConflictError`.
    - `get` returns None for an unknown or expired id.
    - `find_active` returns the active session of a user (and of an agent, if given) that was created last.
    - `list_by_user` returns a user's sessions, newest first (by creation, then by id): at most `limit`, starting after
      `before`.
    - `update_status` changes the status and the completion time, and returns the changed session, or None. It does not
      change the version: a running turn can still be saved, and keeps the new status.
    - `delete` deletes a session and its messages, and returns whether it existed.

    >>> import asyncio
    >>> from tellback.sessions import InMemoryAdapter
    >>> async def main():
    ...     sessions = InMemoryAdapter().session_repository
    ...     await sessions.create(SessionData("web-42", user_id="maya"))
    ...     found = await sessions.find_active("maya")
    ...     print(found.id, await sessions.delete("web-42"), await sessions.get("web-42"))
    >>> asyncio.run(main())
    web-42 True None
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

    - `add` appends messages to one session, all or none, in order, and updates the session (`message_count`,
      `last_message_at`, `updated_at`; not its version). It returns them with their positions. It raises `NotFoundError`
      for an unknown session. The id of a stored message may be rejected with `InvalidArgumentError`.
    - `list_by_session` returns messages in the order they were added: the last `limit` before the position `before`, or
      the first `limit` after the position `after`.

    >>> import asyncio
    >>> from datetime import UTC
    >>> from tellback.sessions import InMemoryAdapter
    >>> async def main():
    ...     adapter = InMemoryAdapter()
    ...     await adapter.session_repository.create(SessionData("web-42"))
    ...     messages = [MessageData("msg_1", "web-42", "user", "Hello!")]
    ...     await adapter.message_repository.add(messages, at=datetime.now(UTC))
    ...     print([each.content for each in await adapter.message_repository.list_by_session("web-42")])
    >>> asyncio.run(main())
    ['Hello!']
    """

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]: ...

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]: ...


class UpdatableSessionRepository(SessionRepository, Protocol):
    """The sessions of an adapter without `save`: see `RepositoryAdapter`.

    `update` stores all fields of a session that exists, and returns it, or None if it does not exist.

    >>> class Sessions:  # a real repository has all methods
    ...     def __init__(self) -> None:
    ...         self.rows: dict[str, SessionData] = {}
    ...     async def update(self, session: SessionData) -> SessionData | None:
    ...         if session.id not in self.rows:
    ...             return None
    ...         self.rows[session.id] = session
    ...         return session
    """

    async def update(self, session: SessionData) -> SessionData | None: ...


class RepositoryAdapter(Protocol):
    """The smallest adapter that `Persistence` accepts: two repositories.

    `initialize`, `disconnect` and `purge_expired` are optional, with the meaning that they have in
    `PersistenceAdapter`. `save` is optional, too: without it, a turn is saved by several calls of the repositories,
    with weaker guarantees. `get` reads the stored version, `create` or `update` stores the session, `add` stores the
    messages. If one of these calls fails, the earlier ones stay stored. If two processes save turns of one session at
    the same time, both may pass the check of the version, and the later one replaces the other's session.

    >>> from tellback.agent import Persistence
    >>> from tellback.sessions import InMemoryAdapter
    >>> class MyAdapter:
    ...     def __init__(self) -> None:
    ...         self.session_repository = InMemoryAdapter().session_repository  # it has no `update`
    ...         self.message_repository = InMemoryAdapter().message_repository
    >>> Persistence(MyAdapter())
    Traceback (most recent call last):
        ...
    tellback.errors.ConfigurationError: ... It lacks session_repository.update.
    """

    @property
    def session_repository(self) -> UpdatableSessionRepository: ...

    @property
    def message_repository(self) -> MessageRepository: ...


@runtime_checkable
class PersistenceAdapter(Protocol):
    """A database that stores sessions and their messages. An adapter of your own may have less: `RepositoryAdapter`.

    - `initialize` creates missing tables and indexes, and runs migrations. It may be called twice, and by several
      processes at the same time.
    - `disconnect` closes the connections that the adapter opened; it may be called twice. It does not close a client
      that was passed in. `initialize` opens the adapter again.
    - `save` stores a session after a turn and the messages of that turn **in one step**: everything or nothing. It
      raises `SessionConflictError` unless the stored version is one less than the session's; a session that does not
      exist has version 0. For an existing session, it keeps `user_id` and `agent_name` if they are set, always keeps
      `status`, `completed_at` and `created_at`, adds the messages to `message_count`, and updates `last_message_at`. It
      returns the session as stored.
    - `purge_expired` deletes expired rows, and returns the number of deleted sessions and messages; if the database
      deletes them automatically, it may do nothing. Expired data is never returned, purged or not: a session expires
      `session_ttl` after its last change, a message `message_ttl` after it was stored.

    Arguments are plain: ids are non-empty strings, `collected_data`, `tool_calls` and `event` are JSON, times are aware
    and in UTC. The adapter returns exactly the stored values, with times to the microsecond. Every method checks ids:
    anything but a string raises `InvalidArgumentError`. An unreachable database raises `StoreUnavailableError`; the
    adapter reconnects when it is back. Use before `initialize` raises `StoreClosedError`.

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
