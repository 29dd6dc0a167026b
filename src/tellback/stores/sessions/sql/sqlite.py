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
from tellback.stores.sessions.records import iso_time
from tellback.stores.sessions.sql.dialect import Make, Operation, Step
from tellback.stores.sessions.sql.sqlite_dialect import SqliteDialect
from tellback.stores.sqlite.connection import SqliteOptions, connect
from tellback.stores.sqlite.failures import store_error
from tellback.types.times import from_micros

T = TypeVar("T")

OLDEST = (3, 35)


class _Opened:
    """The connections, each with its thread."""

    def __init__(self, path: str, busy_timeout: float) -> None:
        options = SqliteOptions(path, busy_timeout=busy_timeout)
        self.pid = os.getpid()
        self.writing = _prepared(options)
        try:
            self.reading = self.writing if options.in_memory else _prepared(options)
        except BaseException:
            self.writing.close()
            raise
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="tellback-sessions-writer")
        self.reader = self.writer
        if not options.in_memory:
            self.reader = ThreadPoolExecutor(1, thread_name_prefix="tellback-sessions-reader")

    def close(self) -> None:
        """Finish what has been asked for, then end."""
        for executor in (self.reader, self.writer):
            executor.shutdown()
        for connection in (self.reading, self.writing):
            connection.close()


class SqliteRunner:
    """Runs operations on a SQLite file, or in memory."""

    dialect = SqliteDialect()

    def __init__(self, path: str, busy_timeout: float) -> None:
        self.place = path
        self._busy_timeout = busy_timeout
        self._opened: _Opened | None = None
        self._changing = threading.Lock()

    async def open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(f"SqliteAdapter needs SQLite 3.35 or later; this is {sqlite3.sqlite_version}.")
        await asyncio.to_thread(self._open)

    async def close(self) -> None:
        # Not to be left half done: whoever is cancelled here leaves threads that end by themselves.
        await asyncio.shield(asyncio.to_thread(self._close))

    async def migrate(self, make: Make[T]) -> T:
        return await self.write(make)

    async def read(self, make: Make[T]) -> T:
        opened = self._in_use()
        return await self._submit(opened.reader, lambda: _run(opened.reading, make()))

    async def write(self, make: Make[T]) -> T:
        opened = self._in_use()
        deadline = time.monotonic() + self._busy_timeout
        return await self._submit(opened.writer, lambda: _write(opened.writing, make, deadline))

    async def _submit(self, executor: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            done = asyncio.get_running_loop().run_in_executor(executor, work)
        except RuntimeError:  # disconnected by another thread meanwhile
            raise self._closed() from None
        try:
            return await done
        except sqlite3.Error as error:
            raise self._named(error) from error

    def _open(self) -> None:
        with self._changing:
            if self._opened is not None:
                return
            try:
                self._opened = _Opened(self.place, self._busy_timeout)
            except sqlite3.Error as error:
                raise self._named(error) from error

    def _close(self) -> None:
        with self._changing:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close()

    def _in_use(self) -> _Opened:
        """The connections, if this process may use them: threads do not come along when a process is forked."""
        opened = self._opened
        if opened is None:
            raise self._closed()
        if opened.pid != os.getpid():
            raise StoreError(f"{self.place} was opened before this process was forked: make another adapter here.")
        return opened

    def _closed(self) -> StoreClosedError:
        return StoreClosedError(f"The session adapter of {self.place} has been closed: call `initialize()` again.")

    def _named(self, error: sqlite3.Error) -> StoreError:
        found = store_error(error, self.place)
        if isinstance(found, StoreBusyError):
            return StoreBusyError(
                f"{self.place} is locked by another connection: {error}. Try again, end what holds it, or wait longer"
                " with SqliteAdapter(..., busy_timeout=SECONDS)."
            )
        return found


def _prepared(options: SqliteOptions) -> sqlite3.Connection:
    connection = connect(options)
    connection.create_function("tellback_now", 0, lambda: time.time_ns() // 1_000)
    connection.create_function("tellback_moment", 1, _moment, deterministic=True)
    return connection


def _write(connection: sqlite3.Connection, make: Make[T], deadline: float) -> T:
    """Run an operation in a transaction. It waits for others no longer than until the deadline, queue included."""
    patience = max(0, int((deadline - time.monotonic()) * 1_000))
    connection.execute(f"PRAGMA busy_timeout = {patience}").fetchall()
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = _run(connection, make())
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # what went wrong before is what the caller should hear of
                connection.execute("ROLLBACK")
        raise
    return result


def _run(connection: sqlite3.Connection, operation: Operation[T]) -> T:
    try:
        step = next(operation)
        while True:
            step = operation.send(_rows(connection, step))
    except StopIteration as done:
        result: T = done.value
        return result


def _rows(connection: sqlite3.Connection, step: Step) -> list[Any]:
    if step.many is not None:
        connection.executemany(step.sql, step.many)
        return []
    return connection.execute(step.sql, step.values).fetchall()


def _moment(value: Any) -> str | None:
    """A moment as we write it, from what other tools write: ISO 8601 (UTC unless it says so), or time since 1970."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            return iso_time(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        number = abs(value)
        scale = 1_000_000 if number < 10**11 else 1_000 if number < 10**14 else 1  # seconds, milli-, microseconds
        return iso_time(from_micros(int(value * scale)))
    except (TypeError, ValueError, OverflowError):
        return None
