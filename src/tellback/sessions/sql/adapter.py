"""The base of the SQLite and PostgreSQL session adapters, on own tables or on those of a Tellback store."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeAlias, TypedDict

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    SessionConflictError,
    StoreClosedError,
)
from tellback.sessions import validation
from tellback.sessions.adapter import MessageRepository, PersistenceAdapter, SessionRepository
from tellback.sessions.records import count_messages
from tellback.sessions.sql.migrations import migrate
from tellback.sessions.sql.schema import (
    BoundStatement,
    OperationFactory,
    SqlDialect,
    SqlOperation,
    SqlRunner,
    TableSpecs,
)
from tellback.sessions.sql.statements import (
    MAX_POSITION,
    Statements,
    build_statements,
    message_from_row,
    message_values,
    optional_time_value,
    session_from_row,
    session_values,
    time_value,
)
from tellback.stores.ports.store import Store
from tellback.types.access import Scope
from tellback.types.conversations import Conversation, MessageData, SessionData, SessionStatus
from tellback.types.ids import new_id, slug, utc_now

BoundValues: TypeAlias = Mapping[str, Any]

PURGE_BATCH = 1_000

CLOSE_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class SqlOperations:
    """Makes the operations of one adapter. What cannot be stored is refused here, before anything is sent."""

    statements: Statements
    dialect: SqlDialect
    session_ttl: float | None
    message_ttl: float | None

    def create(self, session: SessionData) -> OperationFactory[SessionData]:
        """Store a session whose id is new."""
        return partial(self._create, self._session_values(session))

    def save(self, session: SessionData, messages: Sequence[MessageData]) -> OperationFactory[SessionData]:
        """Store a session after a turn, and the messages of that turn."""
        counts = {
            "count": len(messages),
            "last_message_at": self._last_message_time(messages),
            "expected": session.version - 1,
        }
        first_turn = self._session_values(count_messages(replace(session, message_count=0), messages))
        return partial(
            self._save, {**self._session_values(session), **counts}, first_turn, self._message_values(messages)
        )

    def add(self, messages: Sequence[MessageData], at: Any) -> OperationFactory[list[MessageData]]:
        """Append messages to a session, and count them in it."""
        counts = {
            "count": len(messages),
            "last_message_at": self._last_message_time(messages),
            "updated_at": at,
            "ttl": self.session_ttl,
        }
        return partial(
            self._add, {"id": messages[0].session_id, **counts}, self._message_values(messages), copy.deepcopy(messages)
        )

    def set_status(self, values: BoundValues) -> OperationFactory[SessionData | None]:
        """Change a session's status."""
        return partial(self._set_status, {**values, "ttl": self.session_ttl})

    def delete(self, id: str) -> OperationFactory[bool]:
        """Delete a session and its messages."""
        return partial(self._delete, {"id": id})

    def purge(self, statement: str, limit: int) -> OperationFactory[int]:
        """Delete some of what is past its time, and count it."""
        return partial(_count_rows, BoundStatement(statement, {"limit": limit}))

    def sessions(self, statement: str, values: BoundValues) -> OperationFactory[list[SessionData]]:
        """The sessions that a statement finds."""
        return partial(_fetch_sessions, BoundStatement(statement, values))

    def messages(self, statement: str, values: BoundValues) -> OperationFactory[list[MessageData]]:
        """The messages that a statement finds."""
        return partial(_fetch_messages, BoundStatement(statement, values))

    def _create(self, values: BoundValues) -> SqlOperation[SessionData]:
        rows = yield BoundStatement(self.statements.insert_session, values)
        if not rows:
            raise SessionConflictError(values["id"], 0, (yield from self._read_version(values["id"])))
        return session_from_row(rows[0])

    def _save(
        self, turn: BoundValues, first_turn: BoundValues, message_rows: Sequence[BoundValues]
    ) -> SqlOperation[SessionData]:
        """The row that is changed first is locked until the end, so nobody else gives positions meanwhile."""
        id, expected = turn["id"], turn["expected"]
        rows = yield BoundStatement(self.statements.update_turn, turn)
        if not rows and expected == 0:
            rows = yield BoundStatement(self.statements.insert_session, first_turn)
            if not rows:  # it was created just now
                rows = yield BoundStatement(self.statements.update_turn, turn)
        if not rows:
            raise SessionConflictError(id, expected, (yield from self._read_version(id)))
        saved = session_from_row(rows[0])
        yield from self._append(id, message_rows, saved.message_count)
        return saved

    def _add(
        self, counts: BoundValues, message_rows: Sequence[BoundValues], messages: Sequence[MessageData]
    ) -> SqlOperation[list[MessageData]]:
        rows = yield BoundStatement(self.statements.update_message_count, counts)
        if not rows:
            raise NotFoundError("session", counts["id"])
        first_position = yield from self._append(counts["id"], message_rows, int(rows[0][0]))
        return [replace(each, position=first_position + n) for n, each in enumerate(messages)]

    def _set_status(self, values: BoundValues) -> SqlOperation[SessionData | None]:
        rows = yield BoundStatement(self.statements.update_status, values)
        return session_from_row(rows[0]) if rows else None

    def _delete(self, values: BoundValues) -> SqlOperation[bool]:
        rows = yield BoundStatement(self.statements.lock_session, values)
        # Where there is no session, one may begin at this moment: its messages are not to be deleted.
        yield BoundStatement(
            self.statements.delete_messages if rows else self.statements.delete_orphaned_messages, values
        )
        if rows:
            yield BoundStatement(self.statements.delete_session, values)
        return bool(rows and rows[0][0])

    def _append(self, id: str, message_rows: Sequence[BoundValues], count: int) -> SqlOperation[int]:
        """Add messages behind those that are there, or were counted and are gone; gives the position of the first."""
        if not message_rows:
            return 0
        rows = yield BoundStatement(self.statements.select_last_position, {"id": id})
        first_position = max(int(rows[0][0]) if rows else 0, count - len(message_rows)) + 1
        positioned = [{**each, "position": first_position + n} for n, each in enumerate(message_rows)]
        yield BoundStatement(self.statements.insert_message, {}, positioned)
        return first_position

    def _read_version(self, id: str) -> SqlOperation[int]:
        rows = yield BoundStatement(self.statements.select_version, {"id": id})
        return int(rows[0][0] or 0) if rows else 0

    def _session_values(self, session: SessionData) -> dict[str, Any]:
        return {**session_values(session, self.dialect), "ttl": self.session_ttl}

    def _message_values(self, messages: Sequence[MessageData]) -> list[dict[str, Any]]:
        return [{**message_values(each, self.dialect), "ttl": self.message_ttl} for each in messages]

    def _last_message_time(self, messages: Sequence[MessageData]) -> Any:
        return optional_time_value("created_at", messages[-1].created_at, self.dialect) if messages else None


def _fetch_sessions(step: BoundStatement) -> SqlOperation[list[SessionData]]:
    rows = yield step
    return [session_from_row(row) for row in rows]


def _fetch_messages(step: BoundStatement) -> SqlOperation[list[MessageData]]:
    rows = yield step
    return [message_from_row(row) for row in rows]


def _count_rows(step: BoundStatement) -> SqlOperation[int]:
    rows = yield step
    return len(rows)


class TableBackend:
    """A `PersistenceAdapter` on two tables that it makes, or that it finds and completes."""

    def __init__(
        self,
        runner: SqlRunner,
        tables: TableSpecs,
        session_ttl: timedelta | float | None,
        message_ttl: timedelta | float | None,
    ) -> None:
        self.runner = runner
        self._tables = tables
        self._session_ttl = validation.to_ttl_seconds("session_ttl", session_ttl)
        self._message_ttl = validation.to_ttl_seconds("message_ttl", message_ttl)
        self._operations: SqlOperations | None = None
        self._lifecycle_lock = asyncio.Lock()
        self.session_repository = _TableSessions(self)
        self.message_repository = _TableMessages(self)

    @property
    def operations(self) -> SqlOperations:
        """What it can do, once it is initialized."""
        if self._operations is None:
            raise StoreClosedError(
                f"The session adapter of {self.runner.place} is not open: call `await adapter.initialize()` first."
            )
        return self._operations

    async def initialize(self) -> None:
        async with self._lifecycle_lock:
            await self.runner.open()
            try:
                types = await self.runner.migrate(lambda: migrate(self._tables, self.runner.dialect, self.runner.place))
            except BaseException:
                if self._operations is None:
                    await self.runner.close()
                raise
            statements = build_statements(self._tables, self.runner.dialect, types)
            self._operations = SqlOperations(statements, self.runner.dialect, self._session_ttl, self._message_ttl)

    async def disconnect(self) -> None:
        async with self._lifecycle_lock:
            self._operations = None
            await self.runner.close()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        validation.validate_session(session)
        validated = validation.validate_messages(messages, session.id)
        operations = self.operations
        return await self.runner.write(operations.save(session, validated))

    async def purge_expired(self) -> int:
        operations = self.operations
        statements = operations.statements
        total = 0
        for statement in (statements.delete_expired_messages, statements.delete_expired_sessions):
            count = PURGE_BATCH
            while count == PURGE_BATCH:
                count = await self.runner.write(operations.purge(statement, PURGE_BATCH))
                total += count
        return total


class _TableSessions:
    def __init__(self, backend: TableBackend) -> None:
        self._backend = backend

    async def create(self, session: SessionData) -> SessionData:
        validation.validate_session(session)
        operations = self._backend.operations
        return await self._backend.runner.write(operations.create(session))

    async def get(self, session_id: str) -> SessionData | None:
        id = validation.validate_id("session_id", session_id)
        return await self._first(self._backend.operations.statements.select_session, id=id)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        validation.validate_id("user_id", user_id)
        statements = self._backend.operations.statements
        if validation.validate_optional_id("agent_name", agent_name) is None:
            return await self._first(statements.select_active, user_id=user_id, limit=1)
        return await self._first(statements.select_active_of_agent, user_id=user_id, agent_name=agent_name, limit=1)

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        values: dict[str, object] = {
            "user_id": validation.validate_id("user_id", user_id),
            "limit": validation.validate_limit(limit),
        }
        operations = self._backend.operations
        statement = operations.statements.list_sessions
        if before is not None:
            statement = operations.statements.list_sessions_before
            values["id"] = validation.validate_session(before).id
            values["created_at"] = time_value("created_at", before.created_at, operations.dialect)
        return await self._backend.runner.read(operations.sessions(statement, values))

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        validation.validate_status(status)
        id = validation.validate_id("session_id", session_id)
        operations = self._backend.operations
        values = {
            "id": id,
            "status": status,
            "updated_at": time_value("at", at, operations.dialect),
            "completed_at": optional_time_value("completed_at", completed_at, operations.dialect),
        }
        return await self._backend.runner.write(operations.set_status(values))

    async def delete(self, session_id: str) -> bool:
        id = validation.validate_id("session_id", session_id)
        return await self._backend.runner.write(self._backend.operations.delete(id))

    async def _first(self, statement: str, **values: object) -> SessionData | None:
        operation = self._backend.operations.sessions(statement, values)
        found = await self._backend.runner.read(operation)
        return found[0] if found else None


class _TableMessages:
    def __init__(self, backend: TableBackend) -> None:
        self._backend = backend

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = validation.validate_messages(messages)
        operations = self._backend.operations
        added_at = time_value("at", at, operations.dialect)
        if not validated:
            return []
        return await self._backend.runner.write(operations.add(validated, added_at))

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        id, max_count = validation.validate_id("session_id", session_id), validation.validate_limit(limit)
        before_position, after_position = (
            validation.validate_position("before", before),
            validation.validate_position("after", after),
        )
        operations = self._backend.operations
        statement = (
            operations.statements.list_latest_messages
            if after_position is None
            else operations.statements.list_earliest_messages
        )
        values = {
            "session_id": id,
            "limit": max_count,
            "before": MAX_POSITION if before_position is None else before_position,
            "after": -1 if after_position is None else after_position,
        }
        found = await self._backend.runner.read(operations.messages(statement, values))
        return found if after_position is not None else found[::-1]


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
        await self.store.sessions.find_scope(self.tenant_id, self.app_id, "-")
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
        scope = await self.find_scope(session_id)
        return None if scope is None else await self.store.sessions.get(scope, session_id)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        validation.validate_optional_id("agent_name", agent_name)
        return await self.open_store().sessions.find_active(self._user_scope(user_id), agent_name)

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        max_count = validation.validate_limit(limit)
        return await self.open_store().sessions.list_sessions(self._user_scope(user_id), limit=max_count, before=before)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        validation.validate_status(status)
        validation.validate_times(at=at, completed_at=completed_at)
        scope = await self.find_scope(session_id)
        if scope is None:
            return None
        return await self.store.sessions.set_status(scope, session_id, status, at=at, completed_at=completed_at)

    async def delete(self, session_id: str) -> bool:
        scope = await self.find_scope(session_id)
        return scope is not None and await self.store.sessions.delete(scope, session_id, now=utc_now())

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and append its messages to the log."""
        validation.validate_session(session)
        validated = validation.validate_messages(messages, session.id)
        scope = await self.find_scope(session.id) or self.scope(session)
        conversation = self.conversation(scope, session.id, session.agent_name, session.updated_at)
        return await self.store.sessions.save(scope, session, validated, conversation)

    def open_store(self) -> Store:
        """The store, if it may be used."""
        if not self._is_ready:
            raise StoreClosedError("the adapter is not initialized: await adapter.initialize() first.")
        return self.store

    async def find_scope(self, session_id: str) -> Scope | None:
        """The user whose session it is."""
        validation.validate_id("session_id", session_id)
        return await self.open_store().sessions.find_scope(self.tenant_id, self.app_id, session_id)

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
        scope = await backend.find_scope(id)
        session = None if scope is None else await backend.store.sessions.get(scope, id)
        if scope is None or session is None:
            raise NotFoundError("session", id)
        conversation = backend.conversation(scope, id, session.agent_name, at)
        return await backend.store.sessions.add_messages(scope, validated, conversation, at=at)

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        max_count = validation.validate_limit(limit)
        before_position, after_position = (
            validation.validate_position("before", before),
            validation.validate_position("after", after),
        )
        scope = await self._backend.find_scope(session_id)
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
