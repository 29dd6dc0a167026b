"""`SqliteAdapter`: sessions in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Unpack
from urllib.parse import unquote

from tellback.errors import ConfigurationError, StoreClosedError, StoreError
from tellback.sessions.records import format_time
from tellback.sessions.sql.adapter import HasStore, SqlAdapter, StoreBackendOptions, resolve_store_backend
from tellback.sessions.sql.schema import ColumnKind, SqlDialect, TableSpec, TableSpecs, migrate, resolve_tables
from tellback.sessions.sql.statements import SqlStatements
from tellback.sessions.sql.tables import TableRunner, TableStorage
from tellback.sessions.storage import Ttl
from tellback.stores.catalogue import StatementCache
from tellback.stores.engine import Operation, OperationFactory, T
from tellback.stores.sqlite.connection import SqliteOptions, run_operation, to_store_error
from tellback.stores.sqlite.engine import SqliteRunner
from tellback.types.ids import from_micros, now_micros


class SqliteDialect(SqlDialect):
    """SQLite's SQL. Times are strings that sort by time, independent of the column's type."""

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
    select_columns = "SELECT name, type FROM pragma_table_info(:table)"
    select_unique_index = (
        'SELECT 1 FROM pragma_index_list(:table) AS list WHERE list."unique" AND NOT list.partial AND :columns ='
        " (SELECT group_concat(lower(name)) FROM (SELECT name FROM pragma_index_info(list.name) ORDER BY seqno))"
    )
    row_id = "rowid"

    def fold_name(self, name: str) -> str:
        return name.lower()

    def normalize_times(self, table: TableSpec) -> Operation[None]:
        """Convert dates that another tool wrote to our format."""
        for name in (column.name for column in table.columns if column.kind == "moment"):
            column = f'"{table.column_names[name]}"'
            is_foreign_format = f"typeof({column}) <> 'text' OR length({column}) <> 32 OR {column} NOT LIKE '%+00:00'"
            needs_conversion = f"{column} IS NOT NULL AND ({is_foreign_format})"
            is_unreadable = f"{needs_conversion} AND tellback_normalize_time({column}) IS NULL"
            select_unreadable = f'SELECT {column} FROM "{table.name}" WHERE {is_unreadable} LIMIT 1'
            rows = yield select_unreadable, {}
            if rows:
                raise StoreError(
                    f"{table.name} has {rows[0][0]!r:.80} in {column}, which is not a valid time:"
                    " correct it, or map another column with field_mappings."
                )
            yield (
                f'UPDATE "{table.name}" SET {column} = tellback_normalize_time({column}) WHERE {needs_conversion}',
                {},
            )


class SqliteTables(SqliteRunner):
    """Runs operations on two tables in a SQLite file, or in memory."""

    def __init__(self, path: str, busy_timeout: float, tables: TableSpecs) -> None:
        super().__init__(SqliteOptions(path, busy_timeout=busy_timeout, readers=1))
        self.place = path
        self._tables = tables
        self._cache = StatementCache("sqlite")

    async def prepare_tables(self) -> SqlStatements:
        dialect = SqliteDialect()
        types = await self.write(None, partial(migrate, self._tables, dialect, self.place))
        return SqlStatements(self._tables, dialect, types, self._cache)

    def _begin(self) -> StatementCache:
        self._cache = StatementCache("sqlite")
        return self._cache

    def _connect(self, options: SqliteOptions) -> sqlite3.Connection:
        connection = super()._connect(options)
        _add_functions(connection)
        return connection

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"The session adapter of {self.place} is closed: call `initialize()` again.")


class SqliteConnectionTables:
    """Runs operations on two tables, on a connection that its owner closes, in the thread of the event loop.

    If the application has begun a transaction, ours are savepoints in it.
    """

    def __init__(self, connection: sqlite3.Connection, tables: TableSpecs) -> None:
        self.place = "the connection's SQLite database"
        self._connection = connection
        self._tables = tables
        self._cache = StatementCache("sqlite")
        self._is_open = False

    async def open(self) -> None:
        if getattr(self._connection, "autocommit", None) is False:
            raise ConfigurationError(
                "The connection has autocommit=False, so nothing would be stored before your next commit: open it"
                " without this option."
            )
        try:
            _add_functions(self._connection)
        except sqlite3.Error as error:
            raise to_store_error(error, self.place) from error
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def prepare_tables(self) -> SqlStatements:
        dialect = SqliteDialect()
        self._cache = StatementCache("sqlite")
        types = await self.write(None, partial(migrate, self._tables, dialect, self.place))
        return SqlStatements(self._tables, dialect, types, self._cache)

    async def read(self, scope: None, make: OperationFactory[T], *, brief: bool = False) -> T:
        return self._run(make, "BEGIN")

    async def write(self, scope: None, make: OperationFactory[T]) -> T:
        return self._run(make, "BEGIN IMMEDIATE")

    def _run(self, make: OperationFactory[T], begin: str) -> T:
        """Run an operation without interruption: other tasks cannot use the connection meanwhile."""
        if not self._is_open:
            raise StoreClosedError(f"The session adapter of {self.place} is closed: call `initialize()` again.")
        connection = self._connection
        try:
            commit, undo = "COMMIT", ["ROLLBACK"]
            if connection.in_transaction:
                begin, commit = "SAVEPOINT tellback", "RELEASE tellback"
                undo = ["ROLLBACK TO tellback", "RELEASE tellback"]
            cursor = connection.cursor()
            cursor.row_factory = None
            cursor.execute(begin)
            try:
                result, _ = run_operation(cursor, self._cache, {}, make())
                cursor.execute(commit)
            except BaseException:
                if connection.in_transaction:
                    for statement in undo:
                        cursor.execute(statement)
                raise
            return result
        except sqlite3.Error as error:
            raise to_store_error(error, self.place) from error


def _add_functions(connection: sqlite3.Connection) -> None:
    connection.create_function("tellback_now", 0, now_micros)
    connection.create_function("tellback_normalize_time", 1, _normalize_time, deterministic=True)


def _normalize_time(value: Any) -> str | None:
    """Convert a time of another tool to our format: ISO 8601 (UTC by default), or time since 1970."""
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

    `database` is a path, `sqlite:///path`, or `:memory:`, which exists until `disconnect`. It may also be an open
    `sqlite3.Connection`, which the adapter uses in the thread of the event loop and does not close; a save blocks the
    event loop while it waits for another process. If the application has begun a transaction on it, a save becomes part
    of this transaction, and is stored when it is committed. `tables` renames
    `agent_sessions` and `agent_messages`, `field_mappings` renames columns: `{"sessions": {"user_id": "customer"}}`.
    Existing tables get missing columns; nothing in them is dropped. Sessions expire `session_ttl` after their last
    change and messages `message_ttl` after they were stored (seconds or a timedelta). `busy_timeout` is how many
    seconds to wait while another process writes; a connection has its own.

    Acknowledged changes survive a crash of the process at any time. A power loss may lose the last turns, each as a
    whole; the file stays valid.

    With a `Tellback` on SQLite as `database`, sessions are in its file: their messages are also a conversation there,
    stored in one step with the session's state, and remembered, exported and erased with the user's other data. Use
    `tenant_id`, `app_id`, `namespace` and `close_after` instead of the options for tables.

    >>> from datetime import timedelta
    >>> adapter = SqliteAdapter("sessions.db", session_ttl=timedelta(days=30))
    >>> adapter.session_repository is not None
    True
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | sqlite3.Connection | HasStore,
        *,
        tables: Mapping[str, str] | None = None,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: Ttl = None,
        message_ttl: Ttl = None,
        busy_timeout: float = 10.0,
        **store_options: Unpack[StoreBackendOptions],
    ) -> None:
        table_options: dict[str, Any] = {"tables": tables, "field_mappings": field_mappings}
        table_options |= {"session_ttl": session_ttl, "message_ttl": message_ttl}
        store_backend = resolve_store_backend(database, "SqliteAdapter", table_options, store_options)
        if store_backend is not None:
            super().__init__(store_backend)
            return
        seconds, specs = _validate_busy_timeout(busy_timeout), resolve_tables(tables, field_mappings)
        runner: TableRunner
        if isinstance(database, sqlite3.Connection):
            runner = SqliteConnectionTables(database, specs)
        else:
            runner = SqliteTables(_resolve_path(database), seconds, specs)
        super().__init__(TableStorage(runner, session_ttl, message_ttl))


def _resolve_path(database: Any) -> str:
    """Return the file's absolute path."""
    path = os.fspath(database) if isinstance(database, str | os.PathLike) else None
    if not isinstance(path, str) or not path.strip() or "\x00" in path:
        is_other_driver = "sqlite" in type(database).__module__
        hint = (
            " It is a connection of another package: pass the path, or sqlite3.connect(path)."
            if is_other_driver
            else ""
        )
        raise ConfigurationError(
            "SqliteAdapter needs the path of a file, sqlite:///path, ':memory:', or a sqlite3.Connection, got"
            f" {database!r:.80}.{hint}"
        )
    scheme, separator, rest = path.partition("://")
    if separator:
        path = unquote(rest.removeprefix("/")) or ":memory:"
    if (separator and scheme != "sqlite") or path.startswith("file:") or (separator and "?" in rest):
        raise ConfigurationError(
            "SqliteAdapter needs the path of a file, sqlite:///path without settings, or ':memory:';"
            f" it cannot use this {scheme.partition(':')[0]!r:.20} URL."
        )
    return path if path == ":memory:" else os.path.abspath(path)


def _validate_busy_timeout(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise ConfigurationError(f"busy_timeout must be a number of seconds from 0 to 1,000,000, got {value!r:.80}.")
    return float(value)
