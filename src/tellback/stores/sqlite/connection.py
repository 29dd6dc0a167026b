"""SQLite connections, and the writer thread, which commits all queued operations in one transaction.

SQLite allows one writer at a time, and a commit costs far more than the statements in it. So operations queue up while
the thread is busy, and the next transaction runs all of them. An operation that fails does not affect the others: most
fail before they change anything. If one fails after a change, the group is rolled back and run again with a savepoint
for each operation. Without savepoints the usual group is a fifth faster. A caller's future is resolved after the
commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellback.errors import (
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.stores.catalogue import Statement
from tellback.stores.engine import EVENT_STATEMENT, Operation, OperationFactory, T
from tellback.stores.sqlite.schema import TEMP_STORE, check_no_foreign_tables

log = logging.getLogger("tellback.stores")

_PRIMARY_CODE_MASK = 0xFF  # extended codes use the higher bits

MAX_GROUP = 256
"""The approximate limit of operations in one transaction: each of them waits for all others."""

ExclusiveWork = Callable[[sqlite3.Connection], bool]
"""Work that runs outside of transactions. It returns False if it must be tried again."""


def to_store_error(error: sqlite3.Error, path: str) -> StoreError:
    """Convert an error of SQLite to a store error that says what to do."""
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the index of the write-ahead log could not grow
        code = sqlite3.SQLITE_FULL
    match None if code is None else code & _PRIMARY_CODE_MASK:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusyError(
                f"{path} is locked by another connection: {error}. Try again, close the program that locks it, or wait"
                " longer with a greater busy_timeout (for a store: sqlite:///...?busy_timeout=SECONDS)."
            )
        case sqlite3.SQLITE_FULL:
            return StoreFullError(f"The disk of {path} is full: {error}. Free some space and try again.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreReadOnlyError(
                f"{path} cannot be written: {error}. Check the permissions of the file and its folder."
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_AUTH:
            return StoreUnavailableError(
                f"{path} cannot be opened: {error}. Check that its folder exists and is reachable."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreCorruptError(f"{path} is not a valid SQLite database: {error}. Restore it from a backup.")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosedError(f"{path} is closed: open it again.")
    return StoreError(f"{path}: {error}")


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    """The settings of a SQLite file.

    `synchronous="normal"` survives a crash of the process at any time; "full" also survives a power loss, but waits
    once more for the disk for each group of commits. `busy_timeout` is how many seconds to wait for another process's
    lock.
    """

    path: str
    synchronous: str = "normal"
    busy_timeout: float = 10.0
    read_only: bool = False
    readers: int = 4

    @property
    def in_memory(self) -> bool:
        """Whether the database exists only in memory, until its connection is closed."""
        return self.path == ":memory:"


def connect(options: SqliteOptions) -> sqlite3.Connection:
    """Open a connection in autocommit mode: we begin and end transactions explicitly."""
    target = options.path
    if not options.in_memory:
        mode = "ro" if options.read_only else "rwc"
        target = f"{Path(options.path).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        target,
        timeout=options.busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
        uri=True,
    )
    connection.row_factory = sqlite3.Row
    try:
        if not options.read_only:
            _use_wal(connection, options)
        connection.execute(f"PRAGMA synchronous = {options.synchronous}").fetchall()
        connection.execute("PRAGMA foreign_keys = ON").fetchall()
        connection.execute(f"PRAGMA temp_store = {TEMP_STORE}").fetchall()
        connection.execute("PRAGMA cache_size = -16000").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, options: SqliteOptions) -> None:
    """Switch to WAL, unless the file belongs to another program.

    The first connection to a new file switches the mode. SQLite does not wait for other connections that do the same,
    so this retries.
    """
    deadline = time.monotonic() + options.busy_timeout
    while True:
        try:
            check_no_foreign_tables(connection, options.path)
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE_MASK != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def run_operation(
    cursor: sqlite3.Cursor, statements: Mapping[str, Statement], values: dict[str, Any], operation: Operation[T]
) -> tuple[T, bool]:
    """Run an operation to its end. Return its result, and whether it wrote events."""
    wrote_events = False
    try:
        name, parameters = next(operation)
        while True:
            wrote_events = wrote_events or name == EVENT_STATEMENT
            statement = statements[name]
            bound = {**values, **parameters}
            cursor.execute(statement.sql, [bound[key] for key in statement.parameters])
            name, parameters = operation.send(cursor.fetchall())
    except StopIteration as stop:
        result: T = stop.value
        return result, wrote_events


class _PartialWrite(Exception):
    """An operation failed after it had changed rows in a transaction that it shares with others."""


@dataclass(slots=True, eq=False)
class _WriteRequest:
    """A queued operation, or work for the connection outside of transactions, with the future of its caller."""

    make: OperationFactory[Any]
    values: dict[str, Any]
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    exclusive_work: ExclusiveWork | None
    result: Any = None
    wrote_events: bool = False
    error: BaseException | None = None


class WriterThread:
    """Runs operations in groups, on one connection, in its own thread.

    It calls `on_events` after new events are committed, and tries `startup_work` before anything else.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        options: SqliteOptions,
        statements: Mapping[str, Statement],
        on_events: Callable[[], None],
        startup_work: ExclusiveWork | None = None,
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._options = options
        self._statements = statements
        self._on_events = on_events
        self._startup_work = startup_work
        self._requests: queue.SimpleQueue[list[_WriteRequest] | None] = queue.SimpleQueue()
        self._gathered: dict[asyncio.AbstractEventLoop, list[_WriteRequest]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run_loop, name="tellback-writer", daemon=True)
        self._thread.start()

    def submit(self, make: OperationFactory[T], values: dict[str, Any]) -> asyncio.Future[T]:
        """Queue an operation; the future is resolved after its commit. If cancelled earlier, it may not run."""
        return self._enqueue(make, values, None)

    def submit_exclusive(self, work: ExclusiveWork) -> asyncio.Future[bool]:
        """Queue work to run between two transactions."""
        return self._enqueue(_empty_operation, {}, work)

    def _enqueue(
        self, make: OperationFactory[Any], values: dict[str, Any], exclusive_work: ExclusiveWork | None
    ) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        # Hand over after all ready tasks have run: they form one group, and the writer does not compete with them
        # for the interpreter lock.
        others = _count_ready_callbacks(loop)
        with self._lock:
            if self._closed:
                raise self._closed_error()
            gathered = self._gathered.get(loop)
            if gathered is None:
                gathered = self._gathered[loop] = []
                if others:
                    loop.call_soon(self._hand_over, loop)
            else:
                others -= 1  # our own callback
            gathered.append(_WriteRequest(make, values, future, loop, exclusive_work))
        if not others:
            self._hand_over(loop)
        return future

    def close(self) -> None:
        """Finish the queued requests, end the thread and close the connection. Blocks until done."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for gathered in self._gathered.values():
                    self._requests.put(gathered)
                self._gathered.clear()
                self._requests.put(None)
        self._thread.join()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            gathered = self._gathered.pop(loop, None)
            if gathered is not None and not self._closed:
                self._requests.put(gathered)
                return
        for request in gathered or ():
            request.error = self._closed_error()
        _resolve_futures(gathered or [])

    def _run_loop(self) -> None:
        try:
            self._run_startup_work()
            while requests := self._next_requests():
                grouped = [request for request in requests if request.exclusive_work is None]
                if grouped:
                    self._run_requests(grouped)
                    self._deliver(grouped)
                if any(request.wrote_events and request.error is None for request in grouped):
                    self._on_events()
                for request in requests:
                    if request.exclusive_work is not None:
                        self._run_exclusive(request, request.exclusive_work)
                        self._deliver([request])
        except BaseException:
            log.exception("The writer thread of %s failed", self._options.path)
            self._fail_all()
            raise
        finally:
            self._connection.close()

    def _run_startup_work(self) -> None:
        """Finish work that the last writer left unfinished. If that fails, the next writer tries again."""
        try:
            done = self._startup_work is None or self._startup_work(self._connection)
        except sqlite3.Error:
            log.info("Wiping erased data from %s failed; the next writer retries", self._options.path, exc_info=True)
        else:
            if not done:
                log.info("The write-ahead log of %s is in use; it will be wiped later", self._options.path)

    def _next_requests(self) -> list[_WriteRequest]:
        """Return all queued requests, or an empty list when the thread must end."""
        batch = self._requests.get()
        requests: list[_WriteRequest] = []
        while batch is not None:
            requests.extend([request for request in batch if not request.future.cancelled()])
            if len(requests) >= MAX_GROUP:
                return requests
            try:
                batch = self._requests.get_nowait()
            except queue.Empty:
                if requests:
                    return requests
                batch = self._requests.get()
        if requests:
            self._requests.put(None)  # read again by the next call
        return requests

    def _run_requests(self, requests: list[_WriteRequest]) -> None:
        try:
            try:
                self._run_group(requests, self._run_without_savepoint)
            except _PartialWrite:
                self._roll_back()
                self._run_group(requests, self._run_in_savepoint)
        except BaseException as error:  # noqa: BLE001
            # Nothing of the group was committed, so every caller in it gets the error, whatever its type.
            for request in requests:
                request.error = request.error or self._translate_error(error)
            self._roll_back()

    def _run_group(self, requests: list[_WriteRequest], run_one: Callable[[_WriteRequest], None]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for request in requests:
            request.error = None
            run_one(request)
        self._connection.execute("COMMIT")

    def _run_exclusive(self, request: _WriteRequest, work: ExclusiveWork) -> None:
        try:
            request.result = work(self._connection)
        except BaseException as error:  # noqa: BLE001
            request.error = self._translate_error(error)  # its caller gets the error, whatever its type

    def _run_without_savepoint(self, request: _WriteRequest) -> None:
        before = self._connection.total_changes
        try:
            request.result, request.wrote_events = run_operation(
                self._cursor, self._statements, request.values, request.make()
            )
        except BaseException as error:
            request.error = self._translate_error(error)
            if self._connection.total_changes != before or not self._connection.in_transaction:
                raise _PartialWrite from error

    def _run_in_savepoint(self, request: _WriteRequest) -> None:
        execute = self._connection.execute
        execute("SAVEPOINT operation")
        try:
            request.result, request.wrote_events = run_operation(
                self._cursor, self._statements, request.values, request.make()
            )
        except BaseException as error:
            request.error = self._translate_error(error)
            if not self._connection.in_transaction:
                raise  # SQLite has rolled back everything, not only this operation
            execute("ROLLBACK TO operation")
        execute("RELEASE operation")

    def _translate_error(self, error: BaseException) -> BaseException:
        return to_store_error(error, self._options.path) if isinstance(error, sqlite3.Error) else error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _deliver(self, requests: list[_WriteRequest]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_WriteRequest]] = {}
        for request in requests:
            by_loop.setdefault(request.loop, []).append(request)
        for loop, done in by_loop.items():
            with contextlib.suppress(RuntimeError):  # the callers' loop is closed
                loop.call_soon_threadsafe(_resolve_futures, done)

    def _fail_all(self) -> None:
        """Fail all waiting requests: the thread has ended."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                requests = self._requests.get_nowait() or []
                for request in requests:
                    request.error = self._closed_error()
                self._deliver(requests)

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"{self._options.path} is closed: open it again.")


def _empty_operation() -> Operation[None]:
    """Do nothing."""
    yield from ()


def _count_ready_callbacks(loop: asyncio.AbstractEventLoop) -> int:
    """Return how many callbacks are ready to run. Loops other than asyncio's own do not expose it: return 1."""
    callbacks = getattr(loop, "_ready", None)
    return len(callbacks) if callbacks is not None else 1


def _resolve_futures(requests: list[_WriteRequest]) -> None:
    for request in requests:
        if request.future.done():
            continue  # already cancelled
        if request.error is not None:
            request.future.set_exception(request.error)
        else:
            request.future.set_result(request.result)
