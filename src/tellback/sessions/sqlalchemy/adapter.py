"""`SqlAlchemyAdapter`: sessions in a database of the user's own, in its tables or in ours.

Every change begins with a write, which locks the session's row (all of SQLite) before anything is read."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import ColumnElement, MetaData, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.sql.base import Executable

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    SessionConflictError,
    StoreClosedError,
    StoreError,
)
from tellback.sessions import validation
from tellback.sessions.records import EXPIRES_AT, merge_turn, message_to_record, session_to_record
from tellback.sessions.sqlalchemy.database import Database
from tellback.sessions.sqlalchemy.migrations import (
    LATEST_VERSION,
    SchemaInspection,
    fit_layout,
    inspect_schema,
    migrate,
)
from tellback.sessions.sqlalchemy.tables import FieldMappings, MappedTable, TableLayout, TableOptions, resolve_layout
from tellback.types.conversations import MessageData, SessionData, SessionStatus
from tellback.types.ids import utc_now

if TYPE_CHECKING:
    from tellback.sessions.adapter import MessageRepository, SessionRepository

T = TypeVar("T")
BATCH_SIZE = 500

MIGRATE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class TableOperations:
    """The operations on a layout, for rows that live so long."""

    layout: TableLayout
    session_ttl: float | None
    message_ttl: float | None

    async def get(self, connection: AsyncConnection, session_id: str) -> SessionData | None:
        sessions = self.layout.sessions
        found = await self._select_sessions(
            connection, self._has_id(session_id), *_live_conditions(sessions, utc_now())
        )
        return found[0] if found else None

    async def list_by_user(
        self,
        connection: AsyncConnection,
        user_id: str,
        limit: int,
        *,
        before: SessionData | None = None,
        status: SessionStatus | None = None,
        agent_name: str | None = None,
    ) -> list[SessionData]:
        """A user's sessions, those created last first."""
        sessions = self.layout.sessions
        created_at, id = sessions["created_at"], sessions["id"]
        conditions = [sessions["user_id"] == user_id, *_live_conditions(sessions, utc_now())]
        if status is not None:
            conditions.append(sessions["status"] == status)
        if agent_name is not None:
            conditions.append(sessions["agent_name"] == agent_name)
        if before is not None:
            created_before = sessions.encode("created_at", before.created_at)
            conditions.append(or_(created_at < created_before, and_(created_at == created_before, id < before.id)))
        return await self._select_sessions(connection, *conditions, order=(created_at.desc(), id.desc()), limit=limit)

    async def create(self, connection: AsyncConnection, session: SessionData, is_repeat: bool) -> None:
        """Insert a session. If its id was there when that was tried, it may be past its time."""
        if not is_repeat or not await self._replace_expired(connection, session):
            stored = await self._read_version(connection, session.id) if is_repeat else None
            if stored is not None:
                raise SessionConflictError(session.id, 0, stored)
            await self._insert(connection, session)

    async def save(
        self, connection: AsyncConnection, session: SessionData, messages: Sequence[MessageData], is_repeat: bool
    ) -> SessionData:
        """Store a session after a turn, and its messages: the version is compared by the change itself."""
        sessions = self.layout.sessions
        turn: dict[str, Any] = {
            name: getattr(session, name)
            for name in ("current_route", "current_state", "collected_data", "updated_at", "version")
        }
        values = self._change_values({**turn, "collected_data": dict(session.collected_data)}, messages)
        for name in ("user_id", "agent_name"):
            values[sessions[name].key] = func.coalesce(sessions[name], sessions.encode(name, getattr(session, name)))
        if not await self._update(connection, session.id, values, sessions["version"] == session.version - 1):
            stored = await self.get(connection, session.id)
            first = merge_turn(stored, session, messages)  # refuses all but the first turn
            if stored is not None or not await self._replace_expired(connection, first):
                await self._insert(connection, first)
        await self._append_messages(connection, session.id, messages, is_repeat)
        return await self._read_changed(connection, session.id)

    async def update_status(
        self,
        connection: AsyncConnection,
        session_id: str,
        status: SessionStatus,
        at: datetime,
        completed_at: datetime | None,
    ) -> SessionData | None:
        values = self._change_values({"status": status, "updated_at": at, "completed_at": completed_at}, ())
        found = await self._update(connection, session_id, values)
        return await self._read_changed(connection, session_id) if found else None

    async def delete(self, connection: AsyncConnection, session_id: str) -> bool:
        sessions, messages = self.layout.sessions, self.layout.messages
        # Whoever is adding messages is waited for, so that none are left behind.
        lock = update(sessions.table).where(self._has_id(session_id)).values({sessions["version"]: sessions["version"]})
        await connection.execute(lock)
        await connection.execute(delete(messages.table).where(messages["session_id"] == session_id))
        alive = _live_conditions(sessions, utc_now())
        was_there = await _execute_count(connection, delete(sessions.table).where(self._has_id(session_id), *alive))
        if not was_there:
            await connection.execute(delete(sessions.table).where(self._has_id(session_id)))
        return bool(was_there)

    async def add(
        self, connection: AsyncConnection, messages: Sequence[MessageData], at: datetime, is_repeat: bool
    ) -> list[MessageData]:
        session_id = messages[0].session_id
        if not await self._update(connection, session_id, self._change_values({"updated_at": at}, messages)):
            raise NotFoundError("session", session_id)
        return await self._append_messages(connection, session_id, messages, is_repeat)

    async def list_by_session(
        self, connection: AsyncConnection, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        messages = self.layout.messages
        position = messages["position"]
        conditions = [messages["session_id"] == session_id, *_live_conditions(messages, utc_now())]
        if before is not None:
            conditions.append(position < before)
        if after is not None:
            conditions.append(position > after)
        order = position.desc() if after is None else position.asc()
        query = select(*messages.selected_columns()).where(*conditions).order_by(order).limit(limit)
        found = [_message_from_record(messages.to_record(row)) for row in await connection.execute(query)]
        return found[::-1] if after is None else found

    async def find_expired(self, connection: AsyncConnection, table: MappedTable) -> list[str]:
        """Ids of some rows that are past their time and may be deleted."""
        conditions = self._expired_conditions(table)
        if not conditions:
            return []
        rows = await connection.execute(select(table["id"]).where(*conditions).limit(BATCH_SIZE))
        return list(rows.scalars())

    async def delete_expired(self, connection: AsyncConnection, table: MappedTable, ids: Sequence[str]) -> int:
        """Delete those of the rows that are still past their time."""
        return await _execute_count(
            connection, delete(table.table).where(table["id"].in_(ids), *self._expired_conditions(table))
        )

    def _expired_conditions(self, table: MappedTable) -> list[ColumnElement[bool]]:
        if EXPIRES_AT not in table.columns:
            return []
        conditions: list[ColumnElement[bool]] = [table[EXPIRES_AT] <= table.encode(EXPIRES_AT, utc_now())]
        if table is self.layout.sessions and self.layout.has_foreign_key:
            messages = self.layout.messages
            conditions.append(~select(messages["id"]).where(messages["session_id"] == table["id"]).exists())
        return conditions

    def _has_id(self, session_id: str) -> ColumnElement[bool]:
        return self.layout.sessions["id"] == session_id

    async def _select_sessions(
        self,
        connection: AsyncConnection,
        *conditions: ColumnElement[bool],
        order: Sequence[ColumnElement[Any]] = (),
        limit: int = 1,
    ) -> list[SessionData]:
        sessions = self.layout.sessions
        query = select(*sessions.selected_columns()).where(*conditions).order_by(*order).limit(limit)
        return [_session_from_record(sessions.to_record(row)) for row in await connection.execute(query)]

    async def _read_changed(self, connection: AsyncConnection, session_id: str) -> SessionData:
        """The session that this transaction has changed, even if its time ends meanwhile."""
        return (await self._select_sessions(connection, self._has_id(session_id)))[0]

    async def _read_version(self, connection: AsyncConnection, session_id: str) -> int | None:
        found = await self.get(connection, session_id)
        return None if found is None else found.version

    def _change_values(self, record: dict[str, Any], messages: Sequence[MessageData]) -> dict[str, Any]:
        """What a change sets: the record, the messages that are counted, and when it is past its time."""
        sessions = self.layout.sessions
        if messages:
            record = {**record, "last_message_at": messages[-1].created_at}
        values = sessions.to_row({**record, EXPIRES_AT: _expires_at(self.session_ttl)})
        if messages:
            values[sessions["message_count"].key] = func.coalesce(sessions["message_count"], 0) + len(messages)
        return values

    async def _update(
        self, connection: AsyncConnection, session_id: str, values: dict[str, Any], *conditions: ColumnElement[bool]
    ) -> bool:
        sessions = self.layout.sessions
        alive = _live_conditions(sessions, utc_now())
        change = update(sessions.table).where(self._has_id(session_id), *conditions, *alive).values(values)
        return await _execute_count(connection, change) > 0

    async def _insert(self, connection: AsyncConnection, session: SessionData) -> None:
        row = self.layout.sessions.to_row({**session_to_record(session), EXPIRES_AT: _expires_at(self.session_ttl)})
        await connection.execute(insert(self.layout.sessions.table).values(row))

    async def _replace_expired(self, connection: AsyncConnection, session: SessionData) -> bool:
        """Put a session in the place of one that is past its time."""
        sessions = self.layout.sessions
        if EXPIRES_AT not in sessions.columns:
            return False
        is_expired = sessions[EXPIRES_AT] <= sessions.encode(EXPIRES_AT, utc_now())
        row = sessions.to_row({**session_to_record(session), EXPIRES_AT: _expires_at(self.session_ttl)})
        change = update(sessions.table).where(self._has_id(session.id), is_expired).values(row)
        return await _execute_count(connection, change) > 0

    async def _append_messages(
        self, connection: AsyncConnection, session_id: str, new: Sequence[MessageData], is_repeat: bool
    ) -> list[MessageData]:
        """Insert messages behind those of the session, whose row is locked by now."""
        if not new:
            return []
        messages, sessions = self.layout.messages, self.layout.sessions
        if is_repeat:
            await self._check_message_ids(connection, [each.id for each in new])
        last = select(func.max(messages["position"])).where(messages["session_id"] == session_id).scalar_subquery()
        counts = await connection.execute(select(last, sessions["message_count"]).where(self._has_id(session_id)))
        highest, count = counts.one()
        # Those that were counted may be past their time and deleted: their positions are not given again.
        begin = max(int(highest or 0), int(count or 0) - len(new)) + 1
        positioned = [replace(copy.deepcopy(each), position=n) for n, each in enumerate(new, start=begin)]
        expires_at = _expires_at(self.message_ttl)
        rows = [messages.to_row({**message_to_record(each), EXPIRES_AT: expires_at}) for each in positioned]
        await connection.execute(insert(messages.table), rows)
        return positioned

    async def _check_message_ids(self, connection: AsyncConnection, ids: Sequence[str]) -> None:
        """Refuse ids of messages that are there, and delete those past their time."""
        messages = self.layout.messages
        for start in range(0, len(ids), BATCH_SIZE):
            in_batch = messages["id"].in_(ids[start : start + BATCH_SIZE])
            if expired := self._expired_conditions(messages):
                await connection.execute(delete(messages.table).where(in_batch, *expired))
            taken = await connection.scalar(select(messages["id"]).where(in_batch).limit(1))
            if taken is not None:
                raise InvalidArgumentError(f"There is a message {taken!r} already: nothing was stored.")


def bind_operation(operation: Callable[..., Awaitable[T]], *values: Any, **options: Any) -> Callable[..., Awaitable[T]]:
    """An operation that does the same when it is done again, as a transaction calls it."""

    async def work(connection: AsyncConnection, is_repeat: bool) -> T:
        return await operation(connection, *values, **options)

    return work


def _live_conditions(table: MappedTable, now: datetime) -> list[ColumnElement[bool]]:
    condition = table.is_live(now)
    return [] if condition is None else [condition]


def _expires_at(ttl: float | None) -> datetime | None:
    return None if ttl is None else utc_now() + timedelta(seconds=ttl)


async def _execute_count(connection: AsyncConnection, change: Executable) -> int:
    return int((await connection.execute(change)).rowcount)


def _session_from_record(record: dict[str, Any]) -> SessionData:
    record["collected_data"] = record["collected_data"] or {}
    return SessionData(**record)


def _message_from_record(record: dict[str, Any]) -> MessageData:
    record["tool_calls"] = tuple(record["tool_calls"] or ())
    return MessageData(**record)


class SqlAlchemyAdapter:
    """Sessions in any database that SQLAlchemy has an asyncio driver for, in tables of your own if you like.

    - `engine`: an `AsyncEngine` of yours, which `disconnect` leaves open, or a URL with an asyncio driver.
    - `auto_migrate`: whether `initialize` makes and migrates the tables. Otherwise it looks whether they are there.
    - `tables`: names for `sessions` and `messages`, or `sqlalchemy.Table` objects of yours for both.
    - `field_mappings`: the columns' names, such as `{"sessions": {"user_id": "customerId"}}`.
    - `session_ttl`, `message_ttl`: how long a session lives after its last change and a message after it was stored,
      in seconds or as a timedelta, by the clock of this machine. None is for ever.

    >>> adapter = SqlAlchemyAdapter("sqlite+aiosqlite:///shop.db", tables={"sessions": "AgentSession"})
    >>> sorted(adapter.metadata.tables)
    ['AgentSession', 'agent_messages']

    Each change is one transaction. One that was acknowledged lasts as the database promises for a commit: PostgreSQL
    and MySQL write it to disk first unless `synchronous_commit` or `innodb_flush_log_at_trx_commit` say otherwise, and
    SQLite does with its default `synchronous=FULL`. `sqlite+aiosqlite://` without a file is gone on `disconnect`.

    In tables that it makes, JSON is kept as text and moments to the microsecond, so that all comes back as it was. Of
    columns of yours, only those that can do so keep it exactly: JSONB, for one, sorts names and refuses NUL.
    """

    def __init__(
        self,
        engine: AsyncEngine | str,
        *,
        auto_migrate: bool = False,
        tables: TableOptions | None = None,
        field_mappings: FieldMappings | None = None,
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
    ) -> None:
        self._ttls = (
            validation.to_ttl_seconds("session_ttl", session_ttl),
            validation.to_ttl_seconds("message_ttl", message_ttl),
        )
        self._planned_layout = resolve_layout(tables, field_mappings, migrates=auto_migrate)
        for table, ttl in zip(self._planned_layout.tables(), self._ttls, strict=True):
            if ttl is not None and EXPIRES_AT not in table.columns:
                raise ConfigurationError(
                    f"Table {table.table.name!r} has no column for the time to live: add a DateTime {EXPIRES_AT!r}."
                )
        self._auto_migrate = auto_migrate
        self._database = Database(engine)
        self._operations: TableOperations | None = None
        self._sessions, self._messages = _SqlAlchemySessions(self), _SqlAlchemyMessages(self)

    def __repr__(self) -> str:
        return f"SqlAlchemyAdapter({self._database.place!r})"

    @property
    def metadata(self) -> MetaData:
        """The tables as they must be, for migrations of your own."""
        return self._planned_layout.metadata

    @property
    def session_repository(self) -> SessionRepository:
        """The sessions."""
        return self._sessions

    @property
    def message_repository(self) -> MessageRepository:
        """Their messages."""
        return self._messages

    async def initialize(self) -> None:
        """Make what is missing, or say what is. It may be called twice, and by many at once."""
        await self._database.open()
        try:
            await self._database.read(self._refuse_autocommit)
            inspection = await self._inspect()
            if self._auto_migrate and (inspection.missing or inspection.version < LATEST_VERSION):
                inspection = await self._migrate()
            layout = fit_layout(self._planned_layout, inspection)
        except BaseException:
            if self._operations is None:
                await self._database.close()
            raise
        self._operations = TableOperations(layout, *self._ttls)

    async def disconnect(self) -> None:
        """Give up the connections, unless the engine is yours."""
        self._operations = None
        await self._database.close()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn, in one step."""
        validation.validate_session(session)
        validated = _validate_distinct_ids(validation.validate_messages(messages, session.id))
        database, operations = self.require_open()

        async def work(connection: AsyncConnection, is_repeat: bool) -> SessionData:
            return await operations.save(connection, session, validated, is_repeat)

        return await database.write(work)

    async def purge_expired(self) -> int:
        """Delete what is past its time."""
        database, operations = self.require_open()
        purged = 0
        for table in (operations.layout.messages, operations.layout.sessions):
            while ids := await database.read(bind_operation(operations.find_expired, table)):
                deleted = await database.write(bind_operation(operations.delete_expired, table, ids))
                purged += deleted
                if not deleted or len(ids) < BATCH_SIZE:
                    break
        return purged

    def require_open(self) -> tuple[Database, TableOperations]:
        """What does the work, once it is initialized."""
        if self._operations is None:
            raise StoreClosedError(
                f"The adapter of {self._database.place} is not connected: call `await adapter.initialize()` first."
            )
        return self._database, self._operations

    async def _inspect(self) -> SchemaInspection:
        async def work(connection: AsyncConnection, is_repeat: bool) -> SchemaInspection:
            return await connection.run_sync(inspect_schema, self._planned_layout)

        return await self._database.read(work)

    async def _migrate(self) -> SchemaInspection:
        async def work(connection: AsyncConnection, is_repeat: bool) -> None:
            await connection.run_sync(migrate, self._planned_layout)

        try:
            await self._database.write(work, seconds=MIGRATE_SECONDS)
        except StoreError:
            # Where a database cannot be locked for this, another process may have been quicker.
            inspection = await self._inspect()
            if inspection.missing or inspection.version < LATEST_VERSION:
                raise
            return inspection
        return await self._inspect()

    async def _refuse_autocommit(self, connection: AsyncConnection, is_repeat: bool) -> None:
        raw: Any = await connection.get_raw_connection()
        if self._database.dialect == "sqlite":
            # There a transaction is begun by hand; but in this mode of Python 3.12 the driver would never commit it.
            if getattr(getattr(raw.driver_connection, "_conn", None), "autocommit", None) is True:
                raise ConfigurationError(
                    f"The engine of {self._database.place} has connect_args with autocommit=True, which never commits a"
                    " transaction: leave it out."
                )
            return
        try:
            is_autocommit = self._database.engine.dialect.detect_autocommit_setting(raw.dbapi_connection)
        except NotImplementedError:
            return
        if is_autocommit:
            raise ConfigurationError(
                f"The engine of {self._database.place} has isolation_level='AUTOCOMMIT', which stores a turn in"
                " pieces: pass one without it, such as engine.execution_options(isolation_level='READ COMMITTED')."
            )


class _SqlAlchemySessions:
    def __init__(self, adapter: SqlAlchemyAdapter) -> None:
        self._adapter = adapter

    async def create(self, session: SessionData) -> SessionData:
        validation.validate_session(session)
        database, operations = self._adapter.require_open()

        async def work(connection: AsyncConnection, is_repeat: bool) -> None:
            await operations.create(connection, session, is_repeat)

        await database.write(work)
        return copy.deepcopy(session)

    async def get(self, session_id: str) -> SessionData | None:
        validation.validate_id("session_id", session_id)
        database, operations = self._adapter.require_open()
        return await database.read(bind_operation(operations.get, session_id))

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        validation.validate_id("user_id", user_id)
        validation.validate_optional_id("agent_name", agent_name)
        database, operations = self._adapter.require_open()
        found = await database.read(
            bind_operation(operations.list_by_user, user_id, 1, status="active", agent_name=agent_name)
        )
        return found[0] if found else None

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        validation.validate_id("user_id", user_id)
        max_count = validation.validate_limit(limit)
        if before is not None:
            validation.validate_session(before)
        database, operations = self._adapter.require_open()
        return await database.read(bind_operation(operations.list_by_user, user_id, max_count, before=before))

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        validation.validate_id("session_id", session_id)
        validation.validate_status(status)
        validation.validate_times(at=at, completed_at=completed_at)
        database, operations = self._adapter.require_open()
        return await database.write(bind_operation(operations.update_status, session_id, status, at, completed_at))

    async def delete(self, session_id: str) -> bool:
        validation.validate_id("session_id", session_id)
        database, operations = self._adapter.require_open()
        return await database.write(bind_operation(operations.delete, session_id))


class _SqlAlchemyMessages:
    def __init__(self, adapter: SqlAlchemyAdapter) -> None:
        self._adapter = adapter

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = _validate_distinct_ids(validation.validate_messages(messages))
        validation.validate_times(at=at)
        database, operations = self._adapter.require_open()
        if not validated:
            return []

        async def work(connection: AsyncConnection, is_repeat: bool) -> list[MessageData]:
            return await operations.add(connection, validated, at, is_repeat)

        return await database.write(work)

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        validation.validate_id("session_id", session_id)
        max_count = validation.validate_limit(limit)
        before_position, after_position = (
            validation.validate_position("before", before),
            validation.validate_position("after", after),
        )
        database, operations = self._adapter.require_open()
        return await database.read(
            bind_operation(operations.list_by_session, session_id, max_count, before_position, after_position)
        )


def _validate_distinct_ids(messages: list[MessageData]) -> list[MessageData]:
    if len({each.id for each in messages}) < len(messages):
        raise InvalidArgumentError("Two of the messages have one id: nothing was stored.")
    return messages
