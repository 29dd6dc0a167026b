"""`SqlAdapter`, the base of the SQLite and PostgreSQL adapters, and its backend on the tables of a Tellback store.

On that backend an agent's session is also a conversation of the store, with memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict

from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError, StoreClosedError
from tellback.sessions import validation
from tellback.sessions.adapter import MessageRepository, PersistenceAdapter, SessionRepository
from tellback.stores.ports.store import Store
from tellback.types.access import Scope
from tellback.types.conversations import Conversation
from tellback.types.ids import new_id, slug, utc_now
from tellback.types.sessions import MessageData, SessionData, SessionStatus

CLOSE_AFTER = timedelta(hours=1)


class HasStore(Protocol):
    """A `Tellback`."""

    @property
    def store(self) -> Store: ...


class StoreBackendOptions(TypedDict, total=False):
    """What an adapter takes beside a `Tellback`, and only then."""

    tenant_id: str
    app_id: str
    namespace: str | None
    close_after: timedelta | float | None


def resolve_store_backend(
    database: Any, adapter: str, scheme: str, table_options: Mapping[str, Any], store_options: StoreBackendOptions
) -> StoreBackend | None:
    """Sessions in the store of a `Tellback`, or None if it is something else that was given.

    `of_tables` are arguments for tables of the adapter's own, and `arguments` those for a `Tellback`.
    """
    unknown = store_options.keys() - StoreBackendOptions.__annotations__.keys()
    if unknown:
        raise ConfigurationError(f"{adapter} takes no {', '.join(sorted(unknown))}.")
    store: Store | None = getattr(database, "store", None)
    if store is None or not hasattr(store, "sessions"):
        if store_options:
            raise ConfigurationError(f"{', '.join(store_options)} of {adapter} is for sessions in a Tellback.")
        return None
    if not store.url.startswith(scheme):
        other = "PostgresAdapter" if adapter == "SqliteAdapter" else "SqliteAdapter"
        raise ConfigurationError(f"that Tellback is on {store.url}: use {other}(rc).")
    unsupported = [name for name, value in table_options.items() if value is not None]
    if unsupported:
        raise ConfigurationError(
            f"{', '.join(unsupported)} is for tables of the adapter's own: a Tellback has its tables, and keeps what is"
            " said until it is erased."
        )
    return StoreBackend(store, **store_options)


class StoreBackend:
    """The inside of `SqliteAdapter(rc)` and `PostgresAdapter(rc)`. Sessions are of users of one tenant and app.

    New conversations are of `namespace`, by default named like the agent, and close `close_after` the last message.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant_id: str = "default",
        app_id: str = "default",
        namespace: str | None = None,
        close_after: timedelta | float | None = CLOSE_AFTER,
    ) -> None:
        self.store = store
        self.tenant_id = validation.validate_id("tenant_id", tenant_id)
        self.app_id = validation.validate_id("app_id", app_id)
        self._namespace = validation.validate_optional_id("namespace", namespace)
        seconds = validation.to_ttl_seconds("close_after", close_after)
        self._close_after = None if seconds is None else timedelta(seconds=seconds)
        self._is_ready = False
        self.session_repository = self
        self.message_repository = _StoreBackendMessages(self)

    async def initialize(self) -> None:
        """The tables are the store's own: it is only looked whether it is open."""
        await self.store.sessions.owner(self.tenant_id, self.app_id, "-")
        self._is_ready = True

    async def disconnect(self) -> None:
        """The store is its owner's to close."""
        self._is_ready = False

    async def purge_expired(self) -> int:
        """Nothing expires here."""
        return 0

    async def create(self, session: SessionData) -> SessionData:
        validation.validate_session(session)
        await self.open_store().sessions.create(self.scope(session), session)
        return session

    async def get(self, session_id: str) -> SessionData | None:
        scope = await self.owner(session_id)
        return None if scope is None else await self.store.sessions.get(scope, session_id)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        validation.validate_optional_id("agent_name", agent_name)
        return await self.open_store().sessions.find_active(self._user_scope(user_id), agent_name)

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        max_count = validation.validate_limit(limit)
        return await self.open_store().sessions.list_sessions(self._user_scope(user_id), limit=max_count, before=before)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        validation.validate_status(status)
        validation.validate_times(at=at, completed_at=completed_at)
        scope = await self.owner(session_id)
        if scope is None:
            return None
        return await self.store.sessions.set_status(scope, session_id, status, at=at, completed_at=completed_at)

    async def delete(self, session_id: str) -> bool:
        scope = await self.owner(session_id)
        return scope is not None and await self.store.sessions.delete(scope, session_id, now=utc_now())

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and append its messages to the log."""
        validation.validate_session(session)
        validated = validation.validate_messages(messages, session.id)
        scope = await self.owner(session.id) or self.scope(session)
        conversation = self.conversation(scope, session.id, session.agent_name, session.updated_at)
        return await self.store.sessions.save(scope, session, validated, conversation)

    def open_store(self) -> Store:
        """The store, if it may be used."""
        if not self._is_ready:
            raise StoreClosedError("the adapter is not initialized: await adapter.initialize() first.")
        return self.store

    async def owner(self, session_id: str) -> Scope | None:
        """The user whose session it is."""
        validation.validate_id("session_id", session_id)
        return await self.open_store().sessions.owner(self.tenant_id, self.app_id, session_id)

    def scope(self, session: SessionData) -> Scope:
        """The user whose session it is to be."""
        if session.user_id is None:
            raise InvalidArgumentError(
                f"session {session.id!r} is nobody's: in a Tellback a session belongs to a user. Pass user_id=..., or"
                " say to the agent who speaks: respond(..., sender=Identity(...))."
            )
        return self._user_scope(session.user_id)

    def conversation(self, scope: Scope, session_id: str, agent_name: str | None, at: datetime) -> Conversation:
        """The conversation that is opened if the session has none that is open."""
        return Conversation(
            id=new_id("conv"),
            scope=scope,
            namespace=self._namespace or slug(agent_name or "") or "agent",
            status="open",
            created_at=at,
            updated_at=at,
            session_id=session_id,
            close_after=self._close_after,
        )

    def _user_scope(self, user_id: Any) -> Scope:
        if validation.validate_id("user_id", user_id) == "*":
            raise InvalidArgumentError("user_id cannot be '*'.")
        return Scope(self.tenant_id, self.app_id, user_id)


class _StoreBackendMessages:
    """What is said in them."""

    def __init__(self, backend: StoreBackend) -> None:
        self._backend = backend

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated, backend = validation.validate_messages(messages), self._backend
        validation.validate_times(at=at)
        if not validated:
            return []
        id = validated[0].session_id
        scope = await backend.owner(id)
        session = None if scope is None else await backend.store.sessions.get(scope, id)
        if scope is None or session is None:
            raise NotFoundError("session", id)
        conversation = backend.conversation(scope, id, session.agent_name, at)
        return await backend.store.sessions.add_messages(scope, validated, conversation, at=at)

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        max_count = validation.validate_limit(limit)
        before_position, after_position = (
            validation.validate_position("before", before),
            validation.validate_position("after", after),
        )
        scope = await self._backend.owner(session_id)
        if scope is None:
            return []
        return await self._backend.store.sessions.messages(
            scope, session_id, limit=max_count, before=before_position, after=after_position
        )


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
