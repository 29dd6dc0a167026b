"""The PostgreSQL dialect, and the runner: a connection pool, and a transaction for each operation."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

import asyncpg

from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreUnavailableError, TellbackError
from tellback.sessions.sql.schema import (
    BoundStatement,
    ColumnKind,
    ColumnSpec,
    OperationFactory,
    SqlOperation,
    TableSpec,
)
from tellback.stores.postgres.connection import (
    DRIVER_ERRORS,
    is_connection_lost,
    is_retryable,
    roll_back,
    skip_reset,
    to_store_error,
)
from tellback.stores.postgres.schema import quote_identifier, quote_literal

T = TypeVar("T")

MAX_ATTEMPTS = 4
CONNECT_SECONDS = 5.0
ACQUIRE_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
MIGRATION_SECONDS = 600.0
"""How long one statement of a migration may take: large tables are rewritten, and others may be at it."""

_NAMED_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class PostgresDialect:
    """PostgreSQL's words, for the tables of one schema. JSON goes in and out as text, whatever codecs a pool has."""

    types: Mapping[ColumnKind, str] = {
        "text": "TEXT",
        "count": "BIGINT",
        "moment": "TIMESTAMPTZ",
        "json": "JSON",
        "expiry": "TIMESTAMPTZ",
    }
    now = "statement_timestamp()"
    now_as_time = "statement_timestamp()"
    expires_at = "statement_timestamp() + make_interval(secs => :ttl)"
    byte_collation = 'COLLATE "C"'
    row_lock = " FOR UPDATE"
    row_id = "ctid"

    def __init__(self, schema: str) -> None:
        self._schema = schema
        # Asked of the catalogue's rows: `to_regclass` may answer from a cache that is older than a lock waited for.
        table = (
            f"c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = {quote_literal(schema)})"
            " AND c.relname = :table AND c.relkind IN ('r', 'p', 'f', 'v')"
        )
        self.select_columns = (
            "SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            f" WHERE {table} AND a.attnum > 0 AND NOT a.attisdropped"
        )
        self.select_unique_index = (
            "SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
            f" WHERE {table} AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL"
            " AND i.indexprs IS NULL AND :columns = (SELECT string_agg(a.attname::text, ',' ORDER BY k.place)"
            " FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place)"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.number)"
        )

    def quote(self, name: str) -> str:
        return quote_identifier(name)

    def qualified_name(self, table: str) -> str:
        return f"{quote_identifier(self._schema)}.{quote_identifier(table)}"

    def fold_name(self, name: str) -> str:
        return name

    def value_sql(self, column: ColumnSpec, type: str) -> str:
        if column.kind == "json":
            return f":{column.name}::text::json"
        if column.kind == "moment":
            expression = f":{column.name}::timestamptz"
            return f"({expression} AT TIME ZONE 'UTC')" if _is_naive_timestamp(type) else expression
        return f":{column.name}"

    def column_sql(self, column: ColumnSpec, type: str, name: str) -> str:
        if column.kind == "json":
            return f"{name}::text"
        return f"{name} AT TIME ZONE 'UTC'" if column.kind == "moment" and _is_naive_timestamp(type) else name

    def encode_time(self, value: datetime) -> datetime:
        return value

    def prepare_migration(self) -> SqlOperation[None]:
        """One process at a time, in a schema that is there."""
        lock = "SELECT pg_advisory_xact_lock(hashtext('tellback.sessions'), hashtext(:schema))"
        yield BoundStatement(lock, {"schema": self._schema})
        if not (yield BoundStatement("SELECT 1 FROM pg_namespace WHERE nspname = :schema", {"schema": self._schema})):
            yield BoundStatement(f"CREATE SCHEMA {quote_identifier(self._schema)}", {})

    def normalize_times(self, table: TableSpec) -> SqlOperation[None]:
        """Moments are moments by their type."""
        yield from ()


def _is_naive_timestamp(type: str) -> bool:
    return type.startswith("timestamp") and "without" in type


class PostgresRunner:
    """Runs operations on PostgreSQL, on a pool of its own or on one that was passed in."""

    def __init__(self, database: str | asyncpg.Pool, place: str, schema: str | None, pool_size: int) -> None:
        self.place = place
        self._database = database
        self._schema = schema
        self._pool_size = pool_size
        self._pool: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dialect: PostgresDialect | None = None
        self._running = 0
        self._idle = asyncio.Event()

    @property
    def dialect(self) -> PostgresDialect:
        """The words for its schema, which is known once it has been opened."""
        if self._dialect is None:
            raise self._closed_error()
        return self._dialect

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pool is not None and self._loop is not loop:
            self._abandon_pool(loop)
        if self._pool is None:
            self._pool, self._loop = await self._open_pool(loop), loop
        if self._dialect is None:
            try:
                self._dialect = PostgresDialect(self._schema or await self._read_current_schema())
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        pool, self._pool, self._dialect = self._pool, None, None
        if pool is None or pool is self._database or self._loop is not asyncio.get_running_loop():
            return
        try:
            async with asyncio.timeout(ACQUIRE_SECONDS):
                while self._running:  # the pool would cut short what has not quite got its connection yet
                    self._idle.clear()
                    await self._idle.wait()
                await pool.close()
        except DRIVER_ERRORS:
            pool.terminate()
        except asyncio.CancelledError:
            pool.terminate()  # nobody else can end it any more
            raise

    async def migrate(self, make_operation: OperationFactory[T]) -> T:
        return await self._run_with_retries(make_operation, MIGRATION_SECONDS, writes=True)

    async def read(self, make_operation: OperationFactory[T]) -> T:
        return await self._run_with_retries(make_operation, STATEMENT_SECONDS, writes=False)

    async def write(self, make_operation: OperationFactory[T]) -> T:
        return await self._run_with_retries(make_operation, STATEMENT_SECONDS, writes=True)

    async def _run_with_retries(self, make_operation: OperationFactory[T], seconds: float, *, writes: bool) -> T:
        """Run an operation, again on another connection when the first broke before anything could be kept."""
        attempt = 0
        while True:
            attempt += 1
            commit = _CommitState()
            self._running += 1
            try:
                async with self._connection() as connection:
                    return await _run_in_transaction(connection, make_operation(), seconds, commit if writes else None)
            except DRIVER_ERRORS as error:
                can_retry = _is_transient(error) or (is_connection_lost(error) and not commit.committing)
                if can_retry and attempt < MAX_ATTEMPTS and not isinstance(error, asyncpg.ClientConfigurationError):
                    await asyncio.sleep(0.01 * attempt * attempt)
                    continue
                raise self._translate_error(error, commit) from error
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise self._closed_error()
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                f"The session adapter of {self.place} was initialized in another event loop: call `initialize()` in"
                " this one."
            )
        try:
            connection = await pool.acquire(timeout=ACQUIRE_SECONDS)
        except TimeoutError as error:
            if pool.get_size() < pool.get_max_size():
                raise  # it was the server that did not answer
            raise StoreBusyError(
                f"No connection to {self.place} became free within {ACQUIRE_SECONDS:g} seconds: raise the size of the"
                " pool, or do less at once."
            ) from error
        try:
            yield connection
        finally:
            with contextlib.suppress(*DRIVER_ERRORS):  # it broke just now; what was done with it is done all the same
                await pool.release(connection)

    async def _open_pool(self, loop: asyncio.AbstractEventLoop) -> Any:
        """The pool that was passed in, or one of our own, which connects when it is first used."""
        database = self._database
        if isinstance(database, str):
            return await asyncpg.create_pool(
                database,
                min_size=0,
                max_size=self._pool_size,
                timeout=CONNECT_SECONDS,
                command_timeout=STATEMENT_SECONDS,
                reset=skip_reset,
                server_settings={"application_name": "tellback"},
            )
        # Pools do not tell by any public name which loop they are of, or that nobody has opened them.
        if getattr(database, "_loop", loop) is not loop:
            raise ConfigurationError("The pool belongs to another event loop: make it in the one that uses it.")
        if database.is_closing() or not getattr(database, "_initialized", True):
            raise ConfigurationError("The pool is not open: pass what `await asyncpg.create_pool(...)` gives.")
        return database

    def _abandon_pool(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let go of a pool whose event loop has ended."""
        if self._loop is not None and not self._loop.is_closed():
            raise ConfigurationError(
                f"The session adapter of {self.place} is in use in another event loop: make another one for this."
            )
        self._pool, self._dialect, self._running = None, None, 0
        self._idle = asyncio.Event()

    async def _read_current_schema(self) -> str:
        found = await self.read(_select_current_schema)
        if found is None:
            raise ConfigurationError(f"{self.place} has no schema to make tables in: name one with schema=... .")
        return found

    def _translate_error(self, error: BaseException, commit: _CommitState) -> TellbackError:
        if isinstance(error, asyncpg.ClientConfigurationError):
            return ConfigurationError(f"The settings in the URL of {self.place} cannot be used: check them.")
        found = to_store_error(error, self.place)
        if self._pool is None and not commit.committing:
            return self._closed_error()
        if commit.committing and (is_connection_lost(error) or isinstance(error, TimeoutError)):
            return StoreUnavailableError(
                f"{found} The change may have been stored: load the session again to see.", in_doubt=True
            )
        return found

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"The session adapter of {self.place} is not open: call `initialize()` first.")


class _CommitState:
    """Whether a transaction may have been committed, though nobody said so."""

    __slots__ = ("committing",)

    def __init__(self) -> None:
        self.committing = False


async def _run_in_transaction(
    connection: Any, operation: SqlOperation[T], seconds: float, commit: _CommitState | None
) -> T:
    """Run an operation; in a transaction if there is any doubt to be kept."""
    try:
        if commit is None:
            return await _run_operation(connection, operation, seconds)
        # Positions are read after a row was locked, and must be those of whoever held it before.
        await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED", timeout=STATEMENT_SECONDS)
        result = await _run_operation(connection, operation, seconds)
        commit.committing = True
        await connection.execute("COMMIT", timeout=STATEMENT_SECONDS)
    except BaseException:
        await roll_back(connection, "SELECT 1" if commit is None else "ROLLBACK")
        raise
    return result


async def _run_operation(connection: Any, operation: SqlOperation[T], seconds: float) -> T:
    try:
        statement = next(operation)
        while True:
            statement = operation.send(await _execute(connection, statement, seconds))
    except StopIteration as done:
        result: T = done.value
        return result


async def _execute(connection: Any, statement: BoundStatement, seconds: float) -> list[Any]:
    sql, names = _number_parameters(statement.sql)
    if statement.batch is not None:
        await connection.executemany(sql, [[each[name] for name in names] for each in statement.batch], timeout=seconds)
        return []
    rows: list[Any] = await connection.fetch(sql, *[statement.values[name] for name in names], timeout=seconds)
    return rows


@functools.lru_cache(512)
def _number_parameters(sql: str) -> tuple[str, tuple[str, ...]]:
    """A statement with numbers for its names, and the names in their order.

    >>> _number_parameters("SELECT :a::text, :b, :a")
    ('SELECT $1::text, $2, $1', ('a', 'b'))
    """
    names = tuple(dict.fromkeys(_NAMED_PARAMETER.findall(sql)))
    return _NAMED_PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", sql), names


def _select_current_schema() -> SqlOperation[str | None]:
    rows = yield BoundStatement("SELECT current_schema()::text", {})
    found: str | None = rows[0][0]
    return found


def _is_transient(error: BaseException) -> bool:
    """Whether nothing was kept, and the same may work at once: also when tables were changed under a prepared plan."""
    return is_retryable(error) or isinstance(error, asyncpg.InvalidCachedStatementError)
