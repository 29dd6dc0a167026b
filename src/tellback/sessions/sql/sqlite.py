"""`SqliteAdapter`: sessions in a SQLite file, with one writer thread and one reader thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, Unpack
from urllib.parse import unquote

from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreError
from tellback.sessions.records import format_time
from tellback.sessions.sql.adapter import HasStore, SqlAdapter, StoreBackendOptions, TableBackend, resolve_store_backend
from tellback.sessions.sql.schema import (
    BoundStatement,
    ColumnKind,
    ColumnSpec,
    OperationFactory,
    SqlOperation,
    TableSpec,
    resolve_tables,
)
from tellback.stores.sqlite.connection import SqliteOptions, connect, to_store_error
from tellback.types.ids import from_micros

T = TypeVar("T")

MIN_SQLITE_VERSION = (3, 35)


class SqliteDialect:
    """SQLite's words. Moments are texts that sort: they stay what they are, whatever type a column was given."""

    types: Mapping[ColumnKind, str] = {
        "text": "TEXT",
        "count": "INTEGER",
        "moment": "TEXT",
        "json": "TEXT",
        "expiry": "INTEGER",
    }
    now = "(SELECT tellback_now())"
    now_as_time = "tellback_normalize_time(tellback_now())"
    expires_at = "(SELECT tellback_now()) + CAST(:ttl * 1000000 AS INTEGER)"
    byte_collation = "COLLATE BINARY"
    row_lock = ""
    select_columns = "SELECT name, type FROM pragma_table_info(:table)"
    select_unique_index = (
        'SELECT 1 FROM pragma_index_list(:table) AS list WHERE list."unique" AND NOT list.partial AND :columns ='
        " (SELECT group_concat(lower(name)) FROM (SELECT name FROM pragma_index_info(list.name) ORDER BY seqno))"
    )
    row_id = "rowid"

    def quote(self, name: str) -> str:
        return f'"{name}"'

    def qualified_name(self, table: str) -> str:
        return f'"{table}"'

    def fold_name(self, name: str) -> str:
        return name.lower()

    def value_sql(self, column: ColumnSpec, type: str) -> str:
        return f":{column.name}"

    def column_sql(self, column: ColumnSpec, type: str, name: str) -> str:
        return name

    def encode_time(self, value: datetime) -> str:
        return format_time(value)

    def prepare_migration(self) -> SqlOperation[None]:
        """The transaction alone keeps others away."""
        yield from ()

    def normalize_times(self, table: TableSpec) -> SqlOperation[None]:
        """Dates that another tool wrote become texts like ours."""
        for name in (column.name for column in table.columns if column.kind == "moment"):
            column = f'"{table.column_names[name]}"'
            is_foreign_format = f"typeof({column}) <> 'text' OR length({column}) <> 32 OR {column} NOT LIKE '%+00:00'"
            needs_conversion = f"{column} IS NOT NULL AND ({is_foreign_format})"
            is_unreadable = f"{needs_conversion} AND tellback_normalize_time({column}) IS NULL"
            select_unreadable = f'SELECT {column} FROM "{table.name}" WHERE {is_unreadable} LIMIT 1'
            rows = yield BoundStatement(select_unreadable, {})
            if rows:
                raise StoreError(
                    f"{table.name} holds {rows[0][0]!r:.80} in {column}, which is no moment that can be read:"
                    " correct it, or name another column with field_mappings."
                )
            yield BoundStatement(
                f'UPDATE "{table.name}" SET {column} = tellback_normalize_time({column}) WHERE {needs_conversion}', {}
            )


class _SqliteConnections:
    """The connections, each with its thread."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        options = SqliteOptions(path, busy_timeout=busy_timeout)
        self.pid = os.getpid()
        self.write_connection = _connect(options)
        try:
            self.read_connection = self.write_connection if options.in_memory else _connect(options)
        except BaseException:
            self.write_connection.close()
            raise
        self.write_executor = ThreadPoolExecutor(1, thread_name_prefix="tellback-sessions-writer")
        self.read_executor = self.write_executor
        if not options.in_memory:
            self.read_executor = ThreadPoolExecutor(1, thread_name_prefix="tellback-sessions-reader")

    def close(self) -> None:
        """Finish what has been asked for, then end."""
        for executor in (self.read_executor, self.write_executor):
            executor.shutdown()
        for connection in (self.read_connection, self.write_connection):
            connection.close()


class SqliteRunner:
    """Runs operations on a SQLite file, or in memory."""

    dialect = SqliteDialect()

    def __init__(self, path: str, busy_timeout: float) -> None:
        self.place = path
        self._busy_timeout = busy_timeout
        self._connections: _SqliteConnections | None = None
        self._lifecycle_lock = threading.Lock()

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
            raise ConfigurationError(f"SqliteAdapter needs SQLite 3.35 or later; this is {sqlite3.sqlite_version}.")
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        # Not to be left half done: whoever is cancelled here leaves threads that end by themselves.
        await asyncio.shield(asyncio.to_thread(self._close))

    async def migrate(self, make_operation: OperationFactory[T]) -> T:
        return await self.write(make_operation)

    async def read(self, make_operation: OperationFactory[T]) -> T:
        connections = self._require_open()
        return await self._submit(
            connections.read_executor, lambda: _run_operation(connections.read_connection, make_operation())
        )

    async def write(self, make_operation: OperationFactory[T]) -> T:
        connections = self._require_open()
        deadline = time.monotonic() + self._busy_timeout
        return await self._submit(
            connections.write_executor,
            lambda: _run_in_transaction(connections.write_connection, make_operation, deadline),
        )

    async def _submit(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            done = asyncio.get_running_loop().run_in_executor(executor, work)
        except RuntimeError:  # disconnected by another thread meanwhile
            raise self._closed_error() from None
        try:
            return await done
        except sqlite3.Error as error:
            raise self._translate_error(error) from error

    def _open(self) -> None:
        with self._lifecycle_lock:
            if self._connections is not None:
                return
            try:
                self._connections = _SqliteConnections(self.place, self._busy_timeout)
            except sqlite3.Error as error:
                raise self._translate_error(error) from error

    def _close(self) -> None:
        with self._lifecycle_lock:
            connections, self._connections = self._connections, None
            if connections is not None:
                connections.close()

    def _require_open(self) -> _SqliteConnections:
        """The connections, if this process may use them: threads do not come along when a process is forked."""
        connections = self._connections
        if connections is None:
            raise self._closed_error()
        if connections.pid != os.getpid():
            raise StoreError(f"{self.place} was opened before this process was forked: make another adapter here.")
        return connections

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"The session adapter of {self.place} has been closed: call `initialize()` again.")

    def _translate_error(self, error: sqlite3.Error) -> StoreError:
        found = to_store_error(error, self.place)
        if isinstance(found, StoreBusyError):
            return StoreBusyError(
                f"{self.place} is locked by another connection: {error}. Try again, end what holds it, or wait longer"
                " with SqliteAdapter(..., busy_timeout=SECONDS)."
            )
        return found


def _connect(options: SqliteOptions) -> sqlite3.Connection:
    connection = connect(options)
    connection.create_function("tellback_now", 0, lambda: time.time_ns() // 1_000)
    connection.create_function("tellback_normalize_time", 1, _normalize_time, deterministic=True)
    return connection


def _run_in_transaction(connection: sqlite3.Connection, make_operation: OperationFactory[T], deadline: float) -> T:
    """Run an operation in a transaction. It waits for others no longer than until the deadline, queue included."""
    busy_timeout_ms = max(0, int((deadline - time.monotonic()) * 1_000))
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = _run_operation(connection, make_operation())
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # what went wrong before is what the caller should hear of
                connection.execute("ROLLBACK")
        raise
    return result


def _run_operation(connection: sqlite3.Connection, operation: SqlOperation[T]) -> T:
    try:
        statement = next(operation)
        while True:
            statement = operation.send(_execute(connection, statement))
    except StopIteration as done:
        result: T = done.value
        return result


def _execute(connection: sqlite3.Connection, statement: BoundStatement) -> list[Any]:
    if statement.batch is not None:
        connection.executemany(statement.sql, statement.batch)
        return []
    return connection.execute(statement.sql, statement.values).fetchall()


def _normalize_time(value: Any) -> str | None:
    """A moment as we write it, from what other tools write: ISO 8601 (UTC unless it says so), or time since 1970."""
    try:
        if isinstance(value, str):
            parsed = datetime.fromisoformat(value.strip())
            return format_time(parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC))
        number = abs(value)
        scale = 1_000_000 if number < 10**11 else 1_000 if number < 10**14 else 1  # seconds, milli-, microseconds
        return format_time(from_micros(int(value * scale)))
    except (TypeError, ValueError, OverflowError):
        return None


class SqliteAdapter(SqlAdapter):
    """Sessions in a SQLite file: for one machine, any number of processes, and nothing to install.

    `database` is a path, `sqlite:///path`, or `:memory:`, which lives until `disconnect`. `tables` gives the tables
    other names than `agent_sessions` and `agent_messages`, and `field_mappings` their columns:
    `{"sessions": {"user_id": "customer"}}`. Tables that are there already are completed, and nothing in them is
    dropped. What expires does so `session_ttl` after a session's last change and `message_ttl` after a message was
    stored, in seconds or as a timedelta. `busy_timeout` is how many seconds to wait while another process writes.

    What was acknowledged outlives the death of the process at any moment. A power cut may cost the last turns, each as
    a whole; the file stays sound.

    With a `Tellback` on SQLite as `database` the sessions are in its own file: what is said in them is also a
    conversation there, in one step with where the session stands, to be remembered, exported and erased with all that
    is the user's. It takes `tenant_id`, `app_id`, `namespace` and `close_after` instead of what names tables.

    >>> adapter = SqliteAdapter("sessions.db", session_ttl=timedelta(days=30))
    >>> adapter.session_repository is not None
    True
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | HasStore,
        *,
        tables: Mapping[str, str] | None = None,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
        busy_timeout: float = 10.0,
        **store_options: Unpack[StoreBackendOptions],
    ) -> None:
        table_options: dict[str, Any] = {"tables": tables, "field_mappings": field_mappings}
        table_options |= {"session_ttl": session_ttl, "message_ttl": message_ttl}
        store_backend = resolve_store_backend(database, "SqliteAdapter", "sqlite:", table_options, store_options)
        if store_backend is not None:
            super().__init__(store_backend)
            return
        runner = SqliteRunner(_resolve_path(database), _validate_busy_timeout(busy_timeout))
        super().__init__(TableBackend(runner, resolve_tables(tables, field_mappings), session_ttl, message_ttl))


def _resolve_path(database: Any) -> str:
    """The file, as it is called from any folder."""
    path = os.fspath(database) if isinstance(database, str | os.PathLike) else None
    if not isinstance(path, str) or not path.strip() or "\x00" in path:
        raise ConfigurationError(
            f"SqliteAdapter takes the path of a file, sqlite:///path, or ':memory:', not {database!r:.80}."
        )
    scheme, separator, rest = path.partition("://")
    if separator:
        path = unquote(rest.removeprefix("/")) or ":memory:"
    if (separator and scheme != "sqlite") or path.startswith("file:") or (separator and "?" in rest):
        raise ConfigurationError(
            "SqliteAdapter takes the path of a file, sqlite:///path without settings behind it, or ':memory:';"
            f" it does not take a URL of {scheme.partition(':')[0]!r:.20} like this."
        )
    return path if path == ":memory:" else os.path.abspath(path)


def _validate_busy_timeout(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise ConfigurationError(f"busy_timeout is a number of seconds, not {value!r:.80}.")
    return float(value)
