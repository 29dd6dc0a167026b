"""What the adapters for SQL databases have in common: each hands its work to a backend."""

from __future__ import annotations

from collections.abc import Sequence

from tellback.stores.sessions.adapter import MessageRepository, PersistenceAdapter, SessionRepository
from tellback.stores.sessions.kept import StoreBackend
from tellback.types.sessions import MessageData, SessionData


class SqlAdapter:
    """A `PersistenceAdapter` whose work another one does."""

    def __init__(self, backend: PersistenceAdapter) -> None:
        self._backend = backend

    @property
    def store_backend(self) -> StoreBackend | None:
        """The sessions beside the conversations of a `Tellback`, if that is where they are."""
        return self._backend if isinstance(self._backend, StoreBackend) else None

    @property
    def session_repository(self) -> SessionRepository:
        """The sessions."""
        return self._backend.session_repository

    @property
    def message_repository(self) -> MessageRepository:
        """Their messages."""
        return self._backend.message_repository

    async def initialize(self) -> None:
        """Connect, and make or complete the tables."""
        await self._backend.initialize()

    async def disconnect(self) -> None:
        """Give up the connections it opened."""
        await self._backend.disconnect()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn, in one step."""
        return await self._backend.save(session, messages)

    async def purge_expired(self) -> int:
        """Delete what is past its time, and say how much that was."""
        return await self._backend.purge_expired()
