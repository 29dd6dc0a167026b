"""`SqlAlchemyAdapter`: sessions in the user's own database, in existing or generated tables."""

from __future__ import annotations

from functools import partial
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tellback.errors import ConfigurationError, StoreError
from tellback.sessions.records import EXPIRES_AT
from tellback.sessions.sql.tables import TableStorage
from tellback.sessions.sqlalchemy.database import Database
from tellback.sessions.sqlalchemy.migrations import SchemaInspection, fit_layout, inspect_schema, migrate
from tellback.sessions.sqlalchemy.statements import CoreStatements, CoreTransaction
from tellback.sessions.sqlalchemy.tables import FieldMappings, TableLayout, TableOptions, resolve_layout
from tellback.sessions.storage import StorageAdapter, Ttl, resolve_ttls
from tellback.stores.engine import OperationFactory, T

MIGRATE_SECONDS = 3600.0


class SqlAlchemyTables(Database):
    """Runs operations on the two tables of a layout."""

    def __init__(self, engine: AsyncEngine | str, layout: TableLayout, *, auto_migrate: bool) -> None:
        super().__init__(engine)
        self._planned_layout = self._layout = layout
        self._auto_migrate = auto_migrate

    async def prepare_tables(self) -> CoreStatements:
        """Create or migrate the tables, or report what is missing."""
        await self.run(self._refuse_autocommit)
        inspection = await self._inspect()
        if self._auto_migrate and not inspection.is_complete:
            inspection = await self._migrate()
        self._layout = fit_layout(self._planned_layout, inspection)
        return CoreStatements(self._layout)

    async def read(self, scope: None, make: OperationFactory[T], *, brief: bool = False) -> T:
        return await self.run(partial(self._run_operation, make))

    async def write(self, scope: None, make: OperationFactory[T]) -> T:
        return await self.run(partial(self._run_operation, make), writes=True)

    async def _run_operation(self, make: OperationFactory[T], connection: AsyncConnection, is_repeat: bool) -> T:
        operation, transaction = make(), CoreTransaction(self._layout, connection, is_repeat)
        try:
            name, values = next(operation)
            while True:
                name, values = operation.send(await transaction.execute(name, values))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _inspect(self) -> SchemaInspection:
        return await self.run(lambda connection, _: connection.run_sync(inspect_schema, self._planned_layout))

    async def _migrate(self) -> SchemaInspection:
        try:
            await self.run(
                lambda connection, _: connection.run_sync(migrate, self._planned_layout),
                writes=True,
                seconds=MIGRATE_SECONDS,
            )
        except StoreError:
            # Not every database supports the lock, so another process may have been faster.
            inspection = await self._inspect()
            if not inspection.is_complete:
                raise
            return inspection
        return await self._inspect()

    async def _refuse_autocommit(self, connection: AsyncConnection, is_repeat: bool) -> None:
        raw: Any = await connection.get_raw_connection()
        if self.dialect == "sqlite":
            # We begin transactions explicitly; in this mode of Python 3.12 the driver would never commit them.
            if getattr(getattr(raw.driver_connection, "_conn", None), "autocommit", None) is True:
                raise ConfigurationError(
                    f"The engine of {self.place} has connect_args with autocommit=True, which never commits a"
                    " transaction: remove it."
                )
            return
        try:
            is_autocommit = self.engine.dialect.detect_autocommit_setting(raw.dbapi_connection)
        except NotImplementedError:
            return
        if is_autocommit:
            raise ConfigurationError(
                f"The engine of {self.place} has isolation_level='AUTOCOMMIT', which stores a turn in several"
                " steps: use another level, such as engine.execution_options(isolation_level='READ COMMITTED')."
            )


class SqlAlchemyAdapter(StorageAdapter):
    """Sessions in any database that SQLAlchemy supports with asyncio, in generated tables or your own.

    - `engine`: your `AsyncEngine`, which `disconnect` leaves open, or a URL with an asyncio driver.
    - `auto_migrate`: whether `initialize` creates and migrates the tables. Otherwise it checks that they exist.
    - `tables`: names for `sessions` and `messages`, or your `sqlalchemy.Table` objects for both.
    - `field_mappings`: column names, such as `{"sessions": {"user_id": "customerId"}}`.
    - `session_ttl`, `message_ttl`: sessions expire this long after their last change, and messages after they were
      stored (seconds or a timedelta, by this machine's clock). None means never.

    >>> adapter = SqlAlchemyAdapter("sqlite+aiosqlite:///shop.db", tables={"sessions": "AgentSession"})
    >>> sorted(adapter.metadata.tables)
    ['AgentSession', 'agent_messages']

    Each change is one transaction. It is as durable as the database's commits: PostgreSQL and MySQL write them to disk
    first, unless `synchronous_commit` or `innodb_flush_log_at_trx_commit` are changed, and so does SQLite with its
    default `synchronous=FULL`. `sqlite+aiosqlite://` without a file is lost on `disconnect`.

    Generated tables store JSON as text and times to the microsecond, so that all values are returned unchanged. Your
    own columns must support that, too: JSONB, for example, sorts keys and rejects NUL.
    """

    def __init__(
        self,
        engine: AsyncEngine | str,
        *,
        auto_migrate: bool = False,
        tables: TableOptions | None = None,
        field_mappings: FieldMappings | None = None,
        session_ttl: Ttl = None,
        message_ttl: Ttl = None,
    ) -> None:
        ttls = resolve_ttls(session_ttl, message_ttl)
        layout = resolve_layout(tables, field_mappings, migrates=auto_migrate)
        for table, ttl in zip(layout.tables(), ttls, strict=True):
            if ttl is not None and EXPIRES_AT not in table.columns:
                raise ConfigurationError(
                    f"Table {table.table.name!r} has no column for expiry times: add a DateTime column {EXPIRES_AT!r}."
                )
        runner = SqlAlchemyTables(engine, layout, auto_migrate=auto_migrate)
        self._place, self._metadata = runner.place, layout.metadata
        super().__init__(TableStorage(runner, *ttls))

    def __repr__(self) -> str:
        return f"SqlAlchemyAdapter({self._place!r})"

    @property
    def metadata(self) -> MetaData:
        """The required tables, for your own migrations."""
        return self._metadata
