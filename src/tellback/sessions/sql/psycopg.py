"""Sessions in PostgreSQL on an asynchronous connection or pool of psycopg, which the application opened.

The statements are those of `PostgresAdapter` for asyncpg: psycopg's raw cursors accept them. Each operation runs in
`connection.transaction()`, which is a savepoint if the application has begun a transaction.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreUnavailableError, TellbackError
from tellback.sessions.sql.postgres import (
    ACQUIRE_SECONDS,
    MIGRATION_SECONDS,
    STATEMENT_SECONDS,
    PostgresDialect,
    select_current_schema,
)
from tellback.sessions.sql.schema import TableSpecs, migrate
from tellback.sessions.sql.statements import SqlStatements
from tellback.stores.catalogue import StatementCache
from tellback.stores.engine import Operation, OperationFactory, T
from tellback.stores.postgres.connection import to_store_error

MAX_ATTEMPTS = 3
_RETRYABLE_STATES = ("40001", "40P01")  # serialization failure, deadlock


class PsycopgTables:
    """Runs operations on two tables, on a connection or a pool that its owner closes."""

    def __init__(self, database: Any, place: str, schema: str | None, tables: TableSpecs) -> None:
        self.place = place
        self._database = database
        self._is_pool = hasattr(database, "getconn")
        self._schema = schema
        self._tables = tables
        self._cache = StatementCache("postgres")
        self._lock: asyncio.Lock | None = None

    async def open(self) -> None:
        if self._database.closed:
            kind = "pool is not open: await pool.open()" if self._is_pool else "connection is closed: pass an open one"
            raise ConfigurationError(f"The {kind}.")
        if self._lock is None:
            self._lock = asyncio.Lock()
            self._cache = StatementCache("postgres")

    async def close(self) -> None:
        self._lock = None

    async def prepare_tables(self) -> SqlStatements:
        schema = self._schema
        if schema is None:
            [[schema]] = await self.read(None, select_current_schema)
            if schema is None:
                raise ConfigurationError(f"{self.place} has no current schema to create tables in: pass schema=... .")
        dialect = PostgresDialect(str(schema))
        types = await self._run(partial(migrate, self._tables, dialect, self.place), MIGRATION_SECONDS)
        return SqlStatements(self._tables, dialect, types, self._cache)

    async def read(self, scope: None, make: OperationFactory[T], *, brief: bool = False) -> T:
        return await self._run(make, STATEMENT_SECONDS)

    async def write(self, scope: None, make: OperationFactory[T]) -> T:
        return await self._run(make, STATEMENT_SECONDS)

    async def _run(self, make: OperationFactory[T], seconds: float) -> T:
        """Run an operation in a transaction. Retry it after a conflict, or if the pool has another connection."""
        attempt = 0
        while True:
            attempt += 1
            is_committing = can_retry = False
            try:
                async with self._connection() as connection:
                    can_retry = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
                    async with asyncio.timeout(seconds), connection.transaction():
                        cursor = psycopg.AsyncRawCursor(connection, row_factory=tuple_row)
                        result = await self._run_operation(cursor, make())
                        is_committing = can_retry
                    return result
            except (psycopg.Error, TimeoutError, OSError) as error:
                is_lost = _is_connection_lost(error)
                should_retry = error_state(error) in _RETRYABLE_STATES or (is_lost and self._is_pool)
                if can_retry and should_retry and not (is_committing and is_lost) and attempt < MAX_ATTEMPTS:
                    await asyncio.sleep(0.01 * attempt * attempt)
                    continue
                in_doubt = is_committing and (is_lost or isinstance(error, TimeoutError))
                raise self._translate_error(error, in_doubt=in_doubt) from error

    async def _run_operation(self, cursor: psycopg.AsyncRawCursor[Any], operation: Operation[T]) -> T:
        try:
            name, parameters = next(operation)
            while True:
                statement = self._cache[name]
                await cursor.execute(statement.sql.encode(), [parameters[key] for key in statement.parameters])
                rows = [] if cursor.description is None else await cursor.fetchall()
                name, parameters = operation.send(rows)
        except StopIteration as stop:
            result: T = stop.value
            return result

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        lock = self._lock
        if lock is None:
            raise StoreClosedError(f"The session adapter of {self.place} is not open: call `initialize()` first.")
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(ACQUIRE_SECONDS):
                    if self._is_pool:
                        connection = await stack.enter_async_context(self._database.connection())
                    else:  # one task at a time: the statements of two would be in one transaction
                        await stack.enter_async_context(lock)
                        connection = self._database
            except TimeoutError as error:
                raise StoreBusyError(
                    f"No connection to {self.place} became free within {ACQUIRE_SECONDS:g} seconds: raise the size of"
                    " the pool, or run fewer requests at the same time."
                ) from error
            yield connection

    def _translate_error(self, error: BaseException, *, in_doubt: bool) -> TellbackError:
        if _is_connection_lost(error):
            note = " The change may have been stored: load the session again to check." if in_doubt else ""
            return StoreUnavailableError(f"{self.place} cannot be reached: {error}.{note}", in_doubt=in_doubt)
        return to_store_error(error, self.place, in_doubt=in_doubt, advice="load the session again to check")


def error_state(error: BaseException) -> str:
    """Return the SQLSTATE of a driver's error, or an empty string."""
    return getattr(error, "sqlstate", None) or ""


def _is_connection_lost(error: BaseException) -> bool:
    if isinstance(error, TimeoutError):
        return False
    state = error_state(error)
    if state:
        return state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "25P03")
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError)
