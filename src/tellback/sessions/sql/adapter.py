"""Sessions in the store of a `Tellback`, and the base of the SQLite and PostgreSQL session adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict

from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError, StoreClosedError
from tellback.sessions import validation
from tellback.sessions.storage import SessionStorage, StorageAdapter, Ttl
from tellback.stores import Store
from tellback.types.access import Scope
from tellback.types.conversations import Conversation, MessageData, SessionData, SessionStatus
from tellback.types.ids import new_id, slug, utc_now

CLOSE_AFTER = timedelta(hours=1)


class HasStore(Protocol):
    """An object with a store: a `Tellback`."""

    @property
    def store(self) -> Store: ...


class StoreBackendOptions(TypedDict, total=False):
    """The options of an adapter that are valid only with a `Tellback`."""

    tenant_id: str
    app_id: str
    namespace: str | None
    close_after: Ttl


def resolve_store_backend(
    database: Any, adapter: str, table_options: Mapping[str, Any], store_options: StoreBackendOptions
) -> StoreBackend | None:
    """Return the storage for the sessions of a `Tellback`, or None if `database` is something else.

    `table_options` are arguments for the adapter's own tables, `store_options` are those for a `Tellback`.
    """
    unknown = store_options.keys() - StoreBackendOptions.__annotations__.keys()
    if unknown:
        raise ConfigurationError(f"{adapter} has no options {', '.join(sorted(unknown))}.")
    store: Store | None = getattr(database, "store", None)
    if store is None or not hasattr(store, "sessions"):
        if store_options:
            raise ConfigurationError(f"{', '.join(store_options)}: pass a Tellback to {adapter} to use these options.")
        return None
    other_adapter, other_scheme = (
        ("PostgresAdapter", "postgres") if adapter == "SqliteAdapter" else ("SqliteAdapter", "sqlite")
    )
    if store.url.startswith(other_scheme):  # stores of other kinds are accepted by both adapters
        raise ConfigurationError(f"This Tellback uses {store.url}: use {other_adapter}(tb).")
    unsupported = [name for name, value in table_options.items() if value is not None]
    if unsupported:
        raise ConfigurationError(
            f"{adapter} does not accept {', '.join(unsupported)} with a Tellback, which has its own tables and whose"
            " messages do not expire."
        )
    return StoreBackend(store, **store_options)


class StoreBackend:
    """The storage of `SqliteAdapter(tb)` and `PostgresAdapter(tb)`, for the users of one tenant and app.

    New conversations are in `namespace` (default: the agent's name), and are closed `close_after` their last message.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant_id: str = "default",
        app_id: str = "default",
        namespace: str | None = None,
        close_after: Ttl = CLOSE_AFTER,
    ) -> None:
        self.store = store
        self.tenant_id = validation.validate_id("tenant_id", tenant_id)
        self.app_id = validation.validate_id("app_id", app_id)
        self._namespace = validation.validate_optional_id("namespace", namespace)
        seconds = validation.to_ttl_seconds("close_after", close_after)
        self._close_after = None if seconds is None else timedelta(seconds=seconds)
        self._is_ready = False

    async def initialize(self) -> None:
        """Check that the store is open. The store creates its tables itself."""
        await self.store.sessions.find_scope(self.tenant_id, self.app_id, "-")
        self._is_ready = True

    async def disconnect(self) -> None:
        """Do nothing: the store's owner closes it."""
        self._is_ready = False

    async def purge_expired(self) -> int:
        """Do nothing: these sessions do not expire."""
        return 0

    async def create(self, session: SessionData) -> SessionData:
        await self._open_store().sessions.create(self._session_scope(session), session)
        return session

    async def get(self, session_id: str) -> SessionData | None:
        scope = await self._find_scope(session_id)
        return None if scope is None else await self.store.sessions.get(scope, session_id)

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None:
        return await self._open_store().sessions.find_active(self._user_scope(user_id), agent_name)

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        return await self._open_store().sessions.list_sessions(self._user_scope(user_id), limit=limit, before=before)

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        scope = await self._find_scope(session_id)
        if scope is None:
            return None
        return await self.store.sessions.set_status(scope, session_id, status, at=at, completed_at=completed_at)

    async def delete(self, session_id: str) -> bool:
        scope = await self._find_scope(session_id)
        return scope is not None and await self.store.sessions.delete(scope, session_id, now=utc_now())

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and append its messages to the log."""
        scope = await self._find_scope(session.id) or self._session_scope(session)
        conversation = self._new_conversation(scope, session.id, session.agent_name, session.updated_at)
        return await self.store.sessions.save(scope, session, messages, conversation)

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]:
        id = messages[0].session_id
        scope = await self._find_scope(id)
        session = None if scope is None else await self.store.sessions.get(scope, id)
        if scope is None or session is None:
            raise NotFoundError("session", id)
        conversation = self._new_conversation(scope, id, session.agent_name, at)
        return await self.store.sessions.add_messages(scope, messages, conversation, at=at)

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        scope = await self._find_scope(session_id)
        if scope is None:
            return []
        return await self.store.sessions.messages(scope, session_id, limit=limit, before=before, after=after)

    def _open_store(self) -> Store:
        """Return the store, if the adapter is initialized."""
        if not self._is_ready:
            raise StoreClosedError("The adapter is not open: await adapter.initialize() first.")
        return self.store

    async def _find_scope(self, session_id: str) -> Scope | None:
        """Return the scope of the session's user."""
        return await self._open_store().sessions.find_scope(self.tenant_id, self.app_id, session_id)

    def _session_scope(self, session: SessionData) -> Scope:
        """Return the scope that owns a new session."""
        if session.user_id is None:
            raise InvalidArgumentError(
                f"session {session.id!r} has no user_id: in a Tellback each session belongs to a user. Pass user_id,"
                " or set the agent's sender: respond(..., sender=Identity(...))."
            )
        return self._user_scope(session.user_id)

    def _new_conversation(self, scope: Scope, session_id: str, agent_name: str | None, at: datetime) -> Conversation:
        """Return the conversation to create if the session has no open one."""
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

    def _user_scope(self, user_id: str) -> Scope:
        if user_id == "*":
            raise InvalidArgumentError("user_id cannot be '*'.")
        return Scope(self.tenant_id, self.app_id, user_id)


class SqlAdapter(StorageAdapter):
    """A `PersistenceAdapter` in SQL: on its own tables, or in the store of a `Tellback`."""

    def __init__(self, storage: SessionStorage) -> None:
        super().__init__(storage)
        self.store_backend = storage if isinstance(storage, StoreBackend) else None
        """The storage in a `Tellback`, or None if the adapter has its own tables."""
