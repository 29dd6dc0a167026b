"""`StorageAdapter`, the part of a session adapter that is the same for every database, and its client's life.

The adapter validates what it is given, and passes it on to a `SessionStorage`, which knows one database. Every adapter
of the package is a `StorageAdapter`; one from elsewhere need only be a `PersistenceAdapter`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from tellback.errors import ConfigurationError, StoreClosedError
from tellback.sessions import validation
from tellback.sessions.adapter import MessageRepository, SessionRepository
from tellback.types.conversations import MessageData, SessionData, SessionStatus

C = TypeVar("C")
Ttl = timedelta | float | None
"""A time to live as an adapter takes it: in seconds or as a timedelta; None is for ever."""


class SessionStorage(Protocol):
    """What a database does for a `PersistenceAdapter`, whose contract it keeps.

    Its arguments are valid, `limit` is a number, and `add` is given at least one message. It refuses what is not JSON.
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
    """A `PersistenceAdapter` on a storage."""

    def __init__(self, storage: SessionStorage) -> None:
        self._storage = storage
        repository = _StorageRepository(storage)
        self.session_repository: SessionRepository = repository
        """The sessions."""
        self.message_repository: MessageRepository = repository
        """Their messages."""

    async def initialize(self) -> None:
        """Connect, and make what is missing. It may be called twice, and by many at once."""
        await self._storage.initialize()

    async def disconnect(self) -> None:
        """Give up the connections it opened; a client that was passed in stays open."""
        await self._storage.disconnect()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn, in one step."""
        validation.validate_session(session)
        return await self._storage.save(session, validation.validate_messages(messages, session.id))

    async def purge_expired(self) -> int:
        """Delete what is past its time, and say how much that was."""
        return await self._storage.purge_expired()


class _StorageRepository:
    """The sessions and messages of a storage, which is given only what is valid."""

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


class ClientConnection(Generic[C]):
    """A client of a database: its owner's, or one of its own between `open` and `close`, in one event loop.

    `place` names the database in errors.
    """

    def __init__(self, client: C | str, place: str) -> None:
        self.place = place
        self._client_or_url = client
        self._client: C | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> bool:
        """Make the client if there is none in this event loop, and say whether it was made."""
        loop = asyncio.get_running_loop()
        if self._client is not None and self._loop is loop:
            return False
        given = self._client_or_url
        self._client, self._loop = self._create_client(given) if isinstance(given, str) else given, loop
        return True

    @asynccontextmanager
    async def initialization(self) -> AsyncIterator[None]:
        """Open it for what is done inside; if that fails, it is closed again unless it was open before."""
        is_new = self.open()
        try:
            yield
        except BaseException:
            if is_new:
                await self.close()
            raise

    async def close(self) -> None:
        """Give up the client; one that was passed in stays open."""
        client, self._client = self._client, None
        # The connections of a loop that has ended ended with it.
        if client is not None and client is not self._client_or_url and self._loop is asyncio.get_running_loop():
            await self._close_client(client)

    def require_open(self) -> C:
        """The client, if it may be used here."""
        if self._client is None:
            raise StoreClosedError(f"The adapter of {self.place} is not open: await adapter.initialize() first.")
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                f"The adapter of {self.place} was initialized in another event loop: await adapter.initialize() in this"
                " one, or make an adapter for each."
            )
        return self._client

    def _create_client(self, url: str) -> C:
        raise NotImplementedError

    async def _close_client(self, client: C) -> None:
        raise NotImplementedError


def resolve_ttls(session_ttl: Ttl, message_ttl: Ttl) -> tuple[float | None, float | None]:
    """Both times to live in seconds."""
    return (
        validation.to_ttl_seconds("session_ttl", session_ttl),
        validation.to_ttl_seconds("message_ttl", message_ttl),
    )
