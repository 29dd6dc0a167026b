"""Operations on a SQLite file: one thread that writes, one that reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreError
from tellback.stores.sessions.records import format_time
from tellback.stores.sessions.sql.dialect import BoundStatement, OperationFactory, SqlOperation
from tellback.stores.sessions.sql.sqlite_dialect import SqliteDialect
from tellback.stores.sqlite.connection import SqliteOptions, connect
from tellback.stores.sqlite.failures import to_store_error
from tellback.types.times import from_micros

T = TypeVar("T")

MIN_SQLITE_VERSION = (3, 35)


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
    connection.create_function("tellback_moment", 1, _normalize_time, deterministic=True)
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
