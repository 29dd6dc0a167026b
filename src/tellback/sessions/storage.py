"""`StorageAdapter`, the part of a session adapter that all databases share, and the lifetime of database clients.

The adapter validates arguments, and passes them to a `SessionStorage`, which knows one database. Every adapter of this
package is a `StorageAdapter`; third-party adapters only need to be a `PersistenceAdapter`, or a `RepositoryAdapter`, to
which `complete_adapter` adds what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from tellback.errors import ConfigurationError, SessionConflictError, StoreClosedError
from tellback.sessions import records, validation
from tellback.sessions.adapter import (
    MessageRepository,
    PersistenceAdapter,
    RepositoryAdapter,
    SessionRepository,
    UpdatableSessionRepository,
)
from tellback.types.conversations import MessageData, SessionData, SessionStatus

C = TypeVar("C")
Ttl = timedelta | float | None
"""A time to live: seconds or a timedelta; None means forever."""


class SessionStorage(Protocol):
    """The database part of a `PersistenceAdapter`, with the same contract.

    Its arguments are valid, `limit` is a number, and `add` receives at least one message. It rejects values that are
    not JSON.

    The first methods of a storage that keeps its sessions in a dict:

    >>> from tellback.errors import SessionConflictError
    >>> class DictStorage:
    ...     def __init__(self) -> None:
    ...         self.sessions: dict[str, SessionData] = {}
    ...     async def create(self, session: SessionData) -> SessionData:
    ...         if session.id in self.sessions:
    ...             raise SessionConflictError(session.id, 0, self.sessions[session.id].version)
    ...         self.sessions[session.id] = session
    ...         return session
    ...     async def get(self, session_id: str) -> SessionData | None:
    ...         return self.sessions.get(session_id)
    >>> asyncio.run(DictStorage().create(SessionData("web-42", user_id="maya"))).user_id
    'maya'
    """

    async def initialize(self) -> None: ...

    async def disconnect(self) -> None: ...

    async def create(self, session: SessionData) -> SessionData: ...

    async def get(self, session_id: str) -> SessionData | None: ...

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None: ...

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]: ...

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None: ...

    async def delete(self, session_id: str) -> bool: ...

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData: ...

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]: ...

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]: ...

    async def purge_expired(self) -> int: ...


class StorageAdapter:
    """A `PersistenceAdapter` that validates arguments and calls a storage.

    >>> class EmptyStorage:  # a real storage has all methods of `SessionStorage`
    ...     async def get(self, session_id: str) -> SessionData | None:
    ...         return None
    >>> class EmptyAdapter(StorageAdapter):
    ...     def __init__(self) -> None:
    ...         super().__init__(EmptyStorage())
    >>> asyncio.run(EmptyAdapter().session_repository.get(42))
    Traceback (most recent call last):
    tellback.errors.InvalidArgumentError: session_id must be a non-empty string, got 42.
    """

    def __init__(self, storage: SessionStorage) -> None:
        self._storage = storage
        repository = _StorageRepository(storage)
        self.session_repository: SessionRepository = repository
        """The repository of sessions."""
        self.message_repository: MessageRepository = repository
        """The repository of the sessions' messages."""

    async def initialize(self) -> None:
        """Connect, and create missing tables or indexes. Safe to call twice, even concurrently."""
        await self._storage.initialize()

    async def disconnect(self) -> None:
        """Close the connections it opened; a client that was passed in stays open."""
        await self._storage.disconnect()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn, in one step."""
        validation.validate_session(session)
        return await self._storage.save(session, validation.validate_messages(messages, session.id))

    async def purge_expired(self) -> int:
        """Delete expired data, and return the number of deleted sessions and messages."""
        return await self._storage.purge_expired()


class _StorageRepository:
    """The repositories of a storage: validate arguments, then call the storage."""

    def __init__(self, storage: SessionStorage) -> None:
        self._storage = storage

    async def create(self, session: SessionData) -> SessionData:
        return await self._storage.create(validation.validate_session(session))

    async def get(self, session_id: str) -> SessionData | None:
        return await self._storage.get(validation.validate_id("session_id", session_id))

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        validation.validate_id("user_id", user_id)
        return await self._storage.find_active(user_id, validation.validate_optional_id("agent_name", agent_name))

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        validation.validate_id("user_id", user_id)
        if before is not None:
            validation.validate_session(before)
        return await self._storage.list_by_user(user_id, validation.validate_limit(limit), before)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        validation.validate_id("session_id", session_id)
        validation.validate_status(status)
        validation.validate_times(at=at, completed_at=completed_at)
        return await self._storage.update_status(session_id, status, at, completed_at)

    async def delete(self, session_id: str) -> bool:
        return await self._storage.delete(validation.validate_id("session_id", session_id))

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = validation.validate_messages(messages)
        validation.validate_times(at=at)
        return await self._storage.add(validated, at) if validated else []

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        validation.validate_id("session_id", session_id)
        return await self._storage.list_by_session(
            session_id,
            validation.validate_limit(limit),
            validation.validate_position("before", before),
            validation.validate_position("after", after),
        )


class RepositoryStorage:
    """The storage of a `RepositoryAdapter`: it saves a turn with the calls of the repositories.

    >>> from tellback.sessions import InMemoryAdapter
    >>> asyncio.run(RepositoryStorage(InMemoryAdapter()).get("web-42")) is None
    True
    """

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    @property
    def _sessions(self) -> UpdatableSessionRepository:
        repository: UpdatableSessionRepository = self._adapter.session_repository
        return repository

    @property
    def _messages(self) -> MessageRepository:
        repository: MessageRepository = self._adapter.message_repository
        return repository

    async def initialize(self) -> None:
        await self._call_if_present("initialize")

    async def disconnect(self) -> None:
        await self._call_if_present("disconnect")

    async def purge_expired(self) -> int:
        return await self._call_if_present("purge_expired") or 0

    async def create(self, session: SessionData) -> SessionData:
        records.encode_valid_session(session)  # raises unless it is JSON
        return await self._sessions.create(session)

    async def get(self, session_id: str) -> SessionData | None:
        return await self._sessions.get(session_id)

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None:
        return await self._sessions.find_active(user_id, agent_name)

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        return await self._sessions.list_by_user(user_id, limit=limit, before=before)

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        return await self._sessions.update_status(session_id, status, at=at, completed_at=completed_at)

    async def delete(self, session_id: str) -> bool:
        return await self._sessions.delete(session_id)

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        records.encode_valid_session(session)
        for message in messages:
            records.encode_message(message)
        if hasattr(self._adapter, "save"):
            saved: SessionData = await self._adapter.save(session, messages)
            return saved
        stored = await self._sessions.get(session.id)
        merged = records.merge_turn(stored, session, ())
        if stored is None:
            merged = await self._sessions.create(merged)
        elif await self._sessions.update(merged) is None:  # deleted meanwhile
            raise SessionConflictError(session.id, session.version - 1, 0)
        if not messages:
            return merged
        await self._messages.add(messages, at=session.updated_at)
        return records.count_messages(merged, messages)

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]:
        for message in messages:
            records.encode_message(message)
        return await self._messages.add(messages, at=at)

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        return await self._messages.list_by_session(session_id, limit=limit, before=before, after=after)

    async def _call_if_present(self, name: str) -> Any:
        method = getattr(self._adapter, name, None)
        return None if method is None else await method()


_REPOSITORY_METHODS = {
    "session_repository": ("create", "get", "find_active", "list_by_user", "update_status", "delete"),
    "message_repository": ("add", "list_by_session"),
}


def complete_adapter(adapter: PersistenceAdapter | RepositoryAdapter) -> PersistenceAdapter:
    """Return an adapter with all methods; those that it lacks are derived from its repositories.

    Raise `ConfigurationError` if a repository or a method of it is missing.

    >>> from tellback.sessions import InMemoryAdapter
    >>> class SavingAdapter:  # with `save`, the session repository needs no `update`
    ...     whole = InMemoryAdapter()
    ...     session_repository, message_repository = whole.session_repository, whole.message_repository
    ...     save = whole.save
    >>> asyncio.run(complete_adapter(SavingAdapter()).purge_expired())
    0
    """
    if isinstance(adapter, PersistenceAdapter) and not isinstance(adapter, type):
        return adapter
    missing: list[str] = []
    for name, methods in _REPOSITORY_METHODS.items():
        repository = getattr(adapter, name, None)
        if name == "session_repository" and not hasattr(adapter, "save"):
            methods = (*methods, "update")
        lacking = [f"{name}.{method}" for method in methods if not callable(getattr(repository, method, None))]
        missing += [name] if repository is None else lacking
    if missing or isinstance(adapter, type):
        hint = "" if missing == [*_REPOSITORY_METHODS] else f" It lacks {', '.join(missing)}."
        raise ConfigurationError(
            "adapter must have a session_repository and a message_repository, such as InMemoryAdapter(), got"
            f" {adapter!r:.80}.{hint if missing else ' It is a class: pass an object.'}"
        )
    return StorageAdapter(RepositoryStorage(adapter))


class ClientConnection(Generic[C]):
    """A client of a database, in one event loop: passed in by its owner, or created by `open` and closed by `close`.

    `place` is the database's name in errors.

    >>> class Connection(ClientConnection[list]):
    ...     def _create_client(self, url: str) -> list:
    ...         return [url]
    ...     async def _close_client(self, client: list) -> None:
    ...         client.clear()
    >>> async def main():
    ...     connection = Connection("demo://localhost", "the demo database")
    ...     async with connection.initialization():
    ...         print(connection.require_open())
    ...     await connection.close()
    >>> asyncio.run(main())
    ['demo://localhost']
    """

    def __init__(self, client: C | str, place: str) -> None:
        self.place = place
        self._client_or_url = client
        self._client: C | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> bool:
        """Create the client if there is none in this event loop. Return whether it was created."""
        loop = asyncio.get_running_loop()
        if self._client is not None and self._loop is loop:
            return False
        given = self._client_or_url
        self._client, self._loop = self._create_client(given) if isinstance(given, str) else given, loop
        return True

    @asynccontextmanager
    async def initialization(self) -> AsyncIterator[None]:
        """Open the client for the block. If the block fails, close it again unless it was open before."""
        is_new = self.open()
        try:
            yield
        except BaseException:
            if is_new:
                await self.close()
            raise

    async def close(self) -> None:
        """Close the client; one that was passed in stays open."""
        client, self._client = self._client, None
        # A closed event loop has already ended its connections.
        if client is not None and client is not self._client_or_url and self._loop is asyncio.get_running_loop():
            await self._close_client(client)

    def require_open(self) -> C:
        """Return the client if it can be used in this event loop."""
        if self._client is None:
            raise StoreClosedError(f"The adapter of {self.place} is not open: await adapter.initialize() first.")
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                f"The adapter of {self.place} was initialized in another event loop: await adapter.initialize() in this"
                " one, or create an adapter for each event loop."
            )
        return self._client

    def _create_client(self, url: str) -> C:
        raise NotImplementedError

    async def _close_client(self, client: C) -> None:
        raise NotImplementedError


def resolve_ttls(session_ttl: Ttl, message_ttl: Ttl) -> tuple[float | None, float | None]:
    """Return both times to live in seconds.

    >>> resolve_ttls(timedelta(days=1), None)
    (86400.0, None)
    """
    return (
        validation.to_ttl_seconds("session_ttl", session_ttl),
        validation.to_ttl_seconds("message_ttl", message_ttl),
    )
