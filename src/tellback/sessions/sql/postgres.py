"""`PostgresAdapter`: sessions in a PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from tellback.errors import ConfigurationError, MissingExtraError, StoreClosedError, TellbackError
from tellback.sessions import validation
from tellback.sessions.sql.adapter import HasStore, SqlAdapter, StoreBackendOptions, resolve_store_backend
from tellback.sessions.sql.schema import ColumnKind, ColumnSpec, SqlDialect, TableSpecs, migrate, resolve_tables
from tellback.sessions.sql.statements import SqlStatements
from tellback.sessions.sql.tables import TableRunner, TableStorage
from tellback.sessions.storage import Ttl
from tellback.stores.catalogue import StatementCache
from tellback.stores.engine import Operation, OperationFactory, T

try:
    import asyncpg
except ModuleNotFoundError as error:
    raise MissingExtraError("asyncpg", "postgres", "The PostgreSQL adapter") from error

from tellback.stores.postgres.connection import skip_reset, to_store_error
from tellback.stores.postgres.engine import PostgresRunner
from tellback.stores.postgres.schema import quote_identifier, quote_literal

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg_pool import AsyncConnectionPool

CONNECT_SECONDS = 5.0
ACQUIRE_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
MIGRATION_SECONDS = 600.0
"""How long one statement of a migration may take: it may rewrite a large table, or wait for another process."""


class PostgresDialect(SqlDialect):
    """PostgreSQL's SQL for the tables of one schema. JSON is transferred as text, independent of the pool's codecs."""

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
        # Query the catalogue: `to_regclass` may answer from a cache that is older than the lock we waited for.
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

    def qualified_name(self, table: str) -> str:
        return f"{quote_identifier(self._schema)}.{self.quote(table)}"

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

    def prepare_migration(self) -> Operation[None]:
        """Lock out other processes, and create the schema if it is missing."""
        lock = "SELECT pg_advisory_xact_lock(hashtext('tellback.sessions'), hashtext(:schema))"
        yield lock, {"schema": self._schema}
        if not (yield "SELECT 1 FROM pg_namespace WHERE nspname = :schema", {"schema": self._schema}):
            yield f"CREATE SCHEMA {quote_identifier(self._schema)}", {}


def _is_naive_timestamp(type: str) -> bool:
    return type.startswith("timestamp") and "without" in type


class PostgresTables(PostgresRunner):
    """Runs operations on two tables in PostgreSQL, on its own pool, or on a pool or connection that was passed in."""

    acquire_seconds = ACQUIRE_SECONDS

    def __init__(
        self,
        database: str | asyncpg.Pool | asyncpg.Connection,
        place: str,
        schema: str | None,
        pool_size: int,
        tables: TableSpecs,
    ) -> None:
        super().__init__()
        self.place = place
        self._database = database
        self._schema = schema
        self._pool_size = pool_size
        self._tables = tables
        self._cache = StatementCache("postgres")

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pool is not None and self._loop is not loop:
            self._abandon_pool()
        if self._pool is None:
            self._pool, self._loop = await self._open_pool(loop), loop
            self._cache = self._statements = StatementCache("postgres")

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if isinstance(self._database, str) and pool is not None and self._loop is asyncio.get_running_loop():
            await self._close_pool(pool, ACQUIRE_SECONDS)

    async def prepare_tables(self) -> SqlStatements:
        schema = self._schema or await self._read_current_schema()
        dialect = PostgresDialect(schema)
        types = await self._write(partial(migrate, self._tables, dialect, self.place), MIGRATION_SECONDS)
        return SqlStatements(self._tables, dialect, types, self._cache)

    async def read(self, scope: None, make: OperationFactory[T], *, brief: bool = False) -> T:
        # A single statement needs no transaction.
        result, _ = await self._run_with_retries(make, {}, None, writes=False, seconds=STATEMENT_SECONDS)
        return result

    async def write(self, scope: None, make: OperationFactory[T]) -> T:
        return await self._write(make, STATEMENT_SECONDS)

    async def _write(self, make: OperationFactory[T], seconds: float) -> T:
        # Positions are read after locking a row, and must include those that the lock's previous holder committed.
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        result, _ = await self._run_with_retries(make, {}, begin, writes=True, seconds=seconds)
        return result

    async def _read_current_schema(self) -> str:
        [[schema]] = await self.read(None, select_current_schema)
        if schema is None:
            raise ConfigurationError(f"{self.place} has no current schema to create tables in: pass schema=... .")
        return str(schema)

    async def _open_pool(self, loop: asyncio.AbstractEventLoop) -> Any:
        """Return what was passed in as a pool, or a new pool, which connects on first use."""
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
        # asyncpg has no public attributes for the pool's event loop and for whether it is open.
        if getattr(database, "_loop", loop) is not loop:
            raise ConfigurationError("The pool or connection belongs to another event loop: create it in this one.")
        if isinstance(database, asyncpg.Connection):
            if database.is_closed():
                raise ConfigurationError("The connection is closed: pass an open one.")
            return _OneConnectionPool(database)
        if database.is_closing() or not getattr(database, "_initialized", True):
            raise ConfigurationError("The pool is not open: pass the result of `await asyncpg.create_pool(...)`.")
        return database

    def _abandon_pool(self) -> None:
        """Drop a pool whose event loop is closed. Raise an error if the loop is still open."""
        if self._loop is not None and not self._loop.is_closed():
            raise ConfigurationError(
                f"The session adapter of {self.place} is in use in another event loop: create one per loop."
            )
        super().__init__()

    def _translate_error(self, error: BaseException, *, in_doubt: bool) -> TellbackError:
        if isinstance(error, asyncpg.ClientConfigurationError):
            return ConfigurationError(f"The URL of {self.place} has invalid settings: check them.")
        if self._pool is None and not in_doubt:
            return self._closed_error()
        return to_store_error(error, self.place, in_doubt=in_doubt, advice="load the session again to check")

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"The session adapter of {self.place} is not open: call `initialize()` first.")


def select_current_schema() -> Operation[list[Any]]:
    """Return the first schema of the search path, or None, as the only value of a row."""
    return (yield "SELECT current_schema()::text", {})


class _OneConnectionPool:
    """A connection of the application as a pool. One task at a time uses it."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    async def acquire(self, *, timeout: float) -> _SharedConnection:  # noqa: ASYNC109 - as asyncpg
        async with asyncio.timeout(timeout):
            await self._lock.acquire()
        return _SharedConnection(self._connection)

    async def release(self, connection: _SharedConnection) -> None:
        self._lock.release()

    def get_size(self) -> int:
        return 1

    def get_max_size(self) -> int:
        return 1


class _SharedConnection:
    """A connection of the application. If the application has begun a transaction, ours are savepoints in it."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._is_nested = not connection.is_closed() and connection.is_in_transaction()
        self.fetch = connection.fetch
        self.is_closed = connection.is_closed

    async def execute(self, statement: str, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncpg
        await self._connection.execute(self._to_savepoint(statement) if self._is_nested else statement, timeout=timeout)

    def terminate(self) -> None:
        """Close the connection, which is in an unknown state; an outer transaction is for its owner to end."""
        if not self._is_nested:
            self._connection.terminate()

    def _to_savepoint(self, statement: str) -> str:
        if statement.startswith("BEGIN"):
            return "SAVEPOINT tellback"
        savepoints = {"COMMIT": "RELEASE SAVEPOINT tellback", "ROLLBACK": "ROLLBACK TO SAVEPOINT tellback"}
        return savepoints.get(statement, statement)


class PostgresAdapter(SqlAdapter):
    """Sessions in a PostgreSQL database, for any number of processes on any number of machines.

    `database` is a URL, or what the application opened and closes itself: a pool or a connection of asyncpg, or an
    asynchronous pool or connection of psycopg. On a single connection, only one save runs at a time; if the application
    has begun a transaction on it, a save becomes part of this transaction, and is stored when it is committed. While
    the adapter uses a connection, other tasks must not. The tables are in `schema`, which is
    created if it is missing, and by default in the first schema of the search path. `tables` renames `agent_sessions`
    and `agent_messages`, `field_mappings` renames columns: `{"sessions": {"user_id": "customer"}}`. Existing tables get
    missing columns; nothing in them is dropped. A jsonb column stores only what jsonb can. Sessions expire
    `session_ttl` after their last change and messages `message_ttl` after they were stored (seconds or a timedelta), by
    the server's clock. `pool_size` is for the adapter's own pool.

    With a `Tellback` on PostgreSQL as `database`, sessions are in its tables: their messages are also a conversation
    there, stored in one step with the session's state, and remembered, exported and erased with the user's other data.
    Use `tenant_id`, `app_id`, `namespace` and `close_after` instead of the options for tables.

    Acknowledged changes survive a crash of the server, unless it runs with `synchronous_commit = off`.

    >>> from datetime import timedelta
    >>> adapter = PostgresAdapter("postgresql://app:secret@db/prod", session_ttl=timedelta(days=30))
    >>> adapter.session_repository is not None
    True
    """

    def __init__(
        self,
        database: str | asyncpg.Pool | asyncpg.Connection | AsyncConnection[Any] | AsyncConnectionPool[Any] | HasStore,
        *,
        schema: str | None = None,
        tables: Mapping[str, str] | None = None,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: Ttl = None,
        message_ttl: Ttl = None,
        pool_size: int = 10,
        **store_options: Unpack[StoreBackendOptions],
    ) -> None:
        table_options: dict[str, Any] = {"schema": schema, "tables": tables, "field_mappings": field_mappings}
        table_options |= {"session_ttl": session_ttl, "message_ttl": message_ttl}
        store_backend = resolve_store_backend(database, "PostgresAdapter", table_options, store_options)
        if store_backend is not None:
            super().__init__(store_backend)
            return
        if schema is not None:
            validation.resolve_names("schema", {"schema": schema}, {"schema": "public"})
        if type(pool_size) is not int or pool_size < 1:
            raise ConfigurationError(f"pool_size must be an integer of at least 1, got {pool_size!r:.80}.")
        place, specs = _describe_database(database), resolve_tables(tables, field_mappings)
        runner: TableRunner
        if _is_psycopg(database):
            from tellback.sessions.sql.psycopg import PsycopgTables  # imports psycopg

            runner = PsycopgTables(database, place, schema, specs)
        else:
            runner = PostgresTables(database, place, schema, pool_size, specs)
        super().__init__(TableStorage(runner, session_ttl, message_ttl))


def _is_psycopg(database: Any) -> bool:
    """Whether this is an asynchronous connection or pool of psycopg. Does not import psycopg."""
    names = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(database).__mro__}
    return bool(names & {"psycopg.AsyncConnection", "psycopg_pool.AsyncConnectionPool"})


def _describe_database(database: Any) -> str:
    """Return the database's name for errors, without user and password."""
    if isinstance(database, asyncpg.Pool) or (_is_psycopg(database) and hasattr(database, "getconn")):
        return "the pool's PostgreSQL database"
    if isinstance(database, asyncpg.Connection) or _is_psycopg(database):
        return "the connection's PostgreSQL database"
    if not isinstance(database, str):
        package = type(database).__module__.partition(".")[0]
        hint = " It is not asynchronous." if package in ("psycopg", "psycopg_pool", "psycopg2") else ""
        raise ConfigurationError(
            "PostgresAdapter needs a URL such as postgresql://user@host/database, or an open connection or pool of"
            f" asyncpg or of psycopg (AsyncConnection, AsyncConnectionPool), got a {type(database).__name__}.{hint}"
        )
    try:
        parts = urlsplit(database)
        _ = None if "," in parts.netloc else parts.port  # the driver parses lists of hosts
    except ValueError:
        parts = urlsplit("")
    after_netloc = f"{parts.path}{parts.query}{parts.fragment}"
    if (
        parts.scheme not in ("postgresql", "postgres")
        or parts.fragment
        or ("@" in after_netloc and "@" not in parts.netloc)
    ):
        raise ConfigurationError(
            "PostgresAdapter needs a URL such as postgresql://user:password@host:5432/database. Percent-encode"
            " special characters in names and passwords: @ : / # ? are %40 %3A %2F %23 %3F."
        )
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
