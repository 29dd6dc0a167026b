"""The SQLite engine: instance ids, the file watcher, writer and reader threads, and `SqliteStore`.

Session adapters with their own tables (`sessions.sql`) also run on `SqliteRunner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import sqlite3
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreError, StoreReadOnlyError
from tellback.stores.catalogue import Statement, statements
from tellback.stores.engine import ChangeNotifier, OperationFactory, T, scope_values
from tellback.stores.sqlite.connection import SqliteOptions, WriterThread, connect, run_operation, to_store_error
from tellback.stores.sqlite.schema import migrate, try_wipe_deleted_rows, wipe_deleted_rows
from tellback.stores.store import Store
from tellback.types.access import Scope

log = logging.getLogger("tellback.stores")

WATCH_SECONDS = 0.1
"""How often to check the change counter while a listener waits."""

WIPE_SECONDS = 0.1
"""How long to wait between two attempts to empty the write-ahead log."""


def new_instance_id() -> str:
    """Return an id for this process and this open store."""
    return "|".join((*_host_and_namespace(), str(os.getpid()), _process_start(os.getpid()) or "", secrets.token_hex(4)))


def is_process_alive(instance_id: str) -> bool | None:
    """Whether the process of an id from `new_instance_id` runs; None if it may run on another machine."""
    try:
        host, namespace, pid_text, started, _ = instance_id.split("|")
        pid = int(pid_text)
    except ValueError:
        return None
    if (host, namespace) != _host_and_namespace() or os.name != "posix":
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process exists and belongs to another user
    return not started or _process_start(pid) == started


def _host_and_namespace() -> tuple[str, str]:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return socket.gethostname(), namespace


def _process_start(pid: int) -> str | None:
    try:
        stat_fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if stat_fields[0] == "Z" else stat_fields[19]


class ChangeWatcher:
    """Notifies listeners when the file has changed, from its own thread, as long as there are listeners."""

    def __init__(self, options: SqliteOptions, notifier: ChangeNotifier) -> None:
        self._options = options
        self._notifier = notifier
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure_running(self) -> None:
        """Start watching, unless already running."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._watch, name="tellback-watcher", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _watch(self) -> None:
        connection: sqlite3.Connection | None = None
        seen: int | None = None
        try:
            while not self._stopped.is_set():
                try:
                    connection = connection or connect(self._options)
                    version = int(connection.execute("PRAGMA data_version").fetchone()[0])
                except sqlite3.Error:  # locked: try again in the next round
                    log.debug("Checking %s for changes failed; retrying", self._options.path, exc_info=True)
                else:
                    if version != seen:
                        seen = version
                        self._notifier.notify()
                self._stopped.wait(WATCH_SECONDS)
                with self._lock:
                    if not self._notifier.has_listeners:
                        self._thread = None
                        return
        finally:
            if connection is not None:
                connection.close()


class SqliteRunner:
    """Runs operations; concurrent writes share a commit. A subclass provides the statements."""

    def __init__(self, options: SqliteOptions) -> None:
        self._pid = 0
        self._options = options
        self._nowait_options = replace(options, busy_timeout=0.0)
        self._statements: Mapping[str, Statement] = {}
        self._lifecycle_lock = asyncio.Lock()
        self._writer: WriterThread | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    def _begin(self) -> Mapping[str, Statement]:
        """Prepare for opening. Return the named statements."""
        raise NotImplementedError

    def _closed_error(self) -> StoreClosedError:
        raise NotImplementedError

    def _connect(self, options: SqliteOptions) -> sqlite3.Connection:
        return connect(options)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Migrate the tables, before anything else runs."""

    def _finish_previous_work(self, connection: sqlite3.Connection) -> bool:
        """Finish work that the last writer left unfinished. Return False if it must be tried again."""
        return True

    def _on_events(self) -> None:
        """Handle newly committed events."""

    def _end(self) -> None:
        """Stop background work of a subclass. Runs in a thread."""

    async def open(self) -> None:
        async with self._lifecycle_lock:
            if self._readers is not None:
                return
            if sqlite3.sqlite_version_info < (3, 35):
                raise ConfigurationError(
                    f"Tellback needs SQLite 3.35 or later; this Python has {sqlite3.sqlite_version}."
                )
            self._pid, self._statements = os.getpid(), self._begin()
            connection = await asyncio.to_thread(self._prepare)
            self._readers = ThreadPoolExecutor(self._options.readers, thread_name_prefix="tellback-reader")
            if self._options.read_only:
                connection.close()
            else:
                self._writer = WriterThread(
                    connection, self._options, self._statements, self._on_events, self._finish_previous_work
                )

    async def close(self) -> None:
        async with self._lifecycle_lock:
            readers, self._readers = self._readers, None
            writer, self._writer = self._writer, None
            if readers is not None:
                # Shielded: if the caller is cancelled, the threads still end.
                await asyncio.shield(asyncio.to_thread(self._close_threads, readers, writer))

    async def read(self, scope: Scope | None, make: OperationFactory[T], *, brief: bool = False) -> T:
        readers = self._require_readers()
        if self._options.in_memory:  # only the writer's connection has the data
            return await self.write(scope, make)
        if brief:
            # Waking a reader thread takes ten times as long as the lookup. A thread is used only if the file is locked.
            with contextlib.suppress(StoreBusyError):
                return self._read(scope, make, brief=True)
        try:
            work = asyncio.get_running_loop().run_in_executor(readers, self._read, scope, make)
        except RuntimeError:  # closed by another thread
            raise self._closed_error() from None
        return await work

    async def write(self, scope: Scope | None, make: OperationFactory[T]) -> T:
        return await self._require_writer().submit(make, scope_values(scope))

    def _prepare(self) -> sqlite3.Connection:
        try:
            connection = self._connect(self._options)
            try:
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise to_store_error(error, self._options.path) from error
        return connection

    def _thread_connection(self, options: SqliteOptions) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect(options)
            self._connections.append(connection)
        return connection

    def _read(self, scope: Scope | None, make: OperationFactory[T], *, brief: bool = False) -> T:
        """Read in this thread, in a snapshot. A brief read uses no snapshot and does not wait for locks."""
        try:
            connection = self._thread_connection(self._nowait_options if brief else self._options)
            if not brief:
                connection.execute("BEGIN")
            try:
                return run_operation(connection.cursor(), self._statements, scope_values(scope), make())[0]
            finally:
                if not brief:
                    connection.execute("ROLLBACK")  # ends the snapshot
        except sqlite3.Error as error:
            raise to_store_error(error, self._options.path) from error

    def _close_threads(self, readers: ThreadPoolExecutor, writer: WriterThread | None) -> None:
        if writer is not None:
            writer.close()
        self._end()
        readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()

    def _require_writer(self) -> WriterThread:
        self._require_readers()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self._options.path} was opened with mode=ro: open it without mode=ro to write.")
        return self._writer

    def _require_readers(self) -> ThreadPoolExecutor:
        """Return the readers if this process may use them: threads do not survive a fork."""
        if self._readers is None:
            raise self._closed_error()
        if self._pid != os.getpid():
            raise StoreError(f"{self._options.path} was opened before this process was forked: open it again here.")
        return self._readers


class SqliteEngine(SqliteRunner):
    """Runs operations on the store's tables, and notifies listeners when the file has changed."""

    positions_after_commit = False
    search: Literal["none", "words", "meaning"] = "none"

    def __init__(self, options: SqliteOptions) -> None:
        super().__init__(options)
        self.instance_id = ""
        self._notifier = ChangeNotifier()
        self._watcher = ChangeWatcher(options, self._notifier)

    @property
    def keeps_deleted_bytes(self) -> bool:
        """Whether deleted bytes remain: a file keeps them, but memory is freed with the rows."""
        return not self._options.in_memory

    async def wipe(self) -> None:
        writer = self._require_writer()
        if self._options.in_memory:
            return
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._options.busy_timeout
        try:
            # Between two attempts, other callers can write.
            while not await writer.submit_exclusive(wipe_deleted_rows):
                if clock() > deadline:
                    raise StoreBusyError("a reader has kept the write-ahead log in use for too long.")
                await asyncio.sleep(WIPE_SECONDS)
        except StoreError as error:
            raise type(error)(
                f"The rows are deleted, but their bytes are still in the files of {self._options.path}: {error}"
                " Erase again to wipe them; otherwise the next process that opens the file wipes them."
            ) from error

    async def changes(self) -> AsyncGenerator[None, None]:
        self._require_readers()
        notifications = self._notifier.notifications()
        try:
            async for notification in notifications:
                if not self._options.in_memory:
                    self._watcher.ensure_running()
                yield notification
        finally:
            await notifications.aclose()

    async def announce_instance(self) -> None:
        """Do nothing: the operating system lists the process."""

    async def is_instance_alive(self, instance_id: str) -> bool | None:
        return is_process_alive(instance_id)

    def _begin(self) -> Mapping[str, Statement]:
        # Here, not in `__init__`: a process forked in between is another instance.
        self.instance_id = new_instance_id()
        self._notifier = ChangeNotifier()
        self._watcher = ChangeWatcher(self._options, self._notifier)
        return statements("sqlite")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        migrate(connection, self._options.path, read_only=self._options.read_only)

    def _finish_previous_work(self, connection: sqlite3.Connection) -> bool:
        return self._options.in_memory or try_wipe_deleted_rows(connection)

    def _on_events(self) -> None:
        self._notifier.notify()

    def _end(self) -> None:
        self._notifier.close()
        self._watcher.close()

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(
            f"{self._options.path} is not open: use `async with Tellback(...)`, and use its handles inside the block."
        )


class SqliteStore(Store):
    """The store in one SQLite file, or in memory with ":memory:".

    >>> SqliteStore("tellback.db").url
    'sqlite:///tellback.db'
    """

    def __init__(
        self,
        path: str,
        *,
        synchronous: str = "normal",
        busy_timeout: float = 10.0,
        read_only: bool = False,
    ) -> None:
        engine = SqliteEngine(SqliteOptions(path, synchronous, busy_timeout, read_only))
        super().__init__(f"sqlite:///{path}", engine)
