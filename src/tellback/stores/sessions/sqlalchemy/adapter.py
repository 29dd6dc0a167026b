"""`SqlAlchemyAdapter`: sessions in a database of the user's own, in its tables or in ours."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tellback.errors import ConfigurationError, InvalidArgumentError, StoreClosedError, StoreError
from tellback.stores.sessions import checks
from tellback.stores.sessions.records import EXPIRES_AT
from tellback.stores.sessions.sqlalchemy.database import Database
from tellback.stores.sessions.sqlalchemy.operations import BATCH_SIZE, TableOperations, bind_operation
from tellback.stores.sessions.sqlalchemy.schema import (
    LATEST_VERSION,
    SchemaInspection,
    fit_layout,
    inspect_schema,
    migrate,
)
from tellback.stores.sessions.sqlalchemy.tables import FieldMappings, TableOptions, resolve_layout
from tellback.types.sessions import MessageData, SessionData, SessionStatus

if TYPE_CHECKING:
    from tellback.stores.sessions.adapter import MessageRepository, SessionRepository

MIGRATE_SECONDS = 3600.0


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
            checks.to_ttl_seconds("session_ttl", session_ttl),
            checks.to_ttl_seconds("message_ttl", message_ttl),
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
        checks.validate_session(session)
        validated = _validate_distinct_ids(checks.validate_messages(messages, session.id))
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
        checks.validate_session(session)
        database, operations = self._adapter.require_open()

        async def work(connection: AsyncConnection, is_repeat: bool) -> None:
            await operations.create(connection, session, is_repeat)

        await database.write(work)
        return copy.deepcopy(session)

    async def get(self, session_id: str) -> SessionData | None:
        checks.validate_id("session_id", session_id)
        database, operations = self._adapter.require_open()
        return await database.read(bind_operation(operations.get, session_id))

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        checks.validate_id("user_id", user_id)
        checks.validate_optional_id("agent_name", agent_name)
        database, operations = self._adapter.require_open()
        found = await database.read(
            bind_operation(operations.of_user, user_id, 1, status="active", agent_name=agent_name)
        )
        return found[0] if found else None

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        checks.validate_id("user_id", user_id)
        max_count = checks.validate_limit(limit)
        if before is not None:
            checks.validate_session(before)
        database, operations = self._adapter.require_open()
        return await database.read(bind_operation(operations.of_user, user_id, max_count, before=before))

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        checks.validate_id("session_id", session_id)
        checks.validate_status(status)
        checks.validate_times(at=at, completed_at=completed_at)
        database, operations = self._adapter.require_open()
        return await database.write(bind_operation(operations.update_status, session_id, status, at, completed_at))

    async def delete(self, session_id: str) -> bool:
        checks.validate_id("session_id", session_id)
        database, operations = self._adapter.require_open()
        return await database.write(bind_operation(operations.delete, session_id))


class _SqlAlchemyMessages:
    def __init__(self, adapter: SqlAlchemyAdapter) -> None:
        self._adapter = adapter

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = _validate_distinct_ids(checks.validate_messages(messages))
        checks.validate_times(at=at)
        database, operations = self._adapter.require_open()
        if not validated:
            return []

        async def work(connection: AsyncConnection, is_repeat: bool) -> list[MessageData]:
            return await operations.add(connection, validated, at, is_repeat)

        return await database.write(work)

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        checks.validate_id("session_id", session_id)
        max_count = checks.validate_limit(limit)
        before_position, after_position = (
            checks.validate_position("before", before),
            checks.validate_position("after", after),
        )
        database, operations = self._adapter.require_open()
        return await database.read(
            bind_operation(operations.of_session, session_id, max_count, before_position, after_position)
        )


def _validate_distinct_ids(messages: list[MessageData]) -> list[MessageData]:
    if len({each.id for each in messages}) < len(messages):
        raise InvalidArgumentError("Two of the messages have one id: nothing was stored.")
    return messages
