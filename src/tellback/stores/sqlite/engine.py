"""The SQLite engine: which processes own what, watching the file, and `SqliteStore`."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import sqlite3
import threading
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Literal

from tellback.errors import StoreBusyError, StoreClosedError, StoreError
from tellback.stores.catalogue import Statement, statements
from tellback.stores.engine import ChangeNotifier
from tellback.stores.sqlite.connection import (
    SqliteOptions,
    connect,
    migrate,
    try_wipe_deleted_rows,
    wipe_deleted_rows,
)
from tellback.stores.sqlite.runner import SqliteRunner
from tellback.stores.store import SqlStore

log = logging.getLogger("tellback.stores")

WATCH_SECONDS = 0.1
"""How often the counter is looked at, while someone waits."""

WIPE_SECONDS = 0.1
"""How long to wait between two attempts to empty the log."""


def new_instance_id() -> str:
    """A name for this process and this opening of the store."""
    return "|".join((*_host_and_namespace(), str(os.getpid()), _process_start(os.getpid()) or "", secrets.token_hex(4)))


def is_instance_alive(instance_id: str) -> bool | None:
    """False when the instance's process is certainly gone, None when that cannot be told from here."""
    try:
        host, namespace, pid, started, _ = instance_id.split("|")
    except ValueError:
        return None
    if (host, namespace) != _host_and_namespace() or os.name != "posix":
        return None
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        pass  # it is there, under another user
    return not started or _process_start(int(pid)) == started


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
    """Notifies when the file has changed; a thread of its own, as long as anyone listens."""

    def __init__(self, options: SqliteOptions, notifier: ChangeNotifier) -> None:
        self._options = options
        self._notifier = notifier
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure_running(self) -> None:
        """Watch, if nobody does."""
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
                except sqlite3.Error:  # locked for a moment: look again in the next round
                    log.debug("could not look for changes of %s", self._options.path, exc_info=True)
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


class SqliteEngine(SqliteRunner):
    """Runs operations on the store's tables, and tells who waits when the file has changed."""

    search: Literal["none", "words", "meaning"] = "none"

    def __init__(self, options: SqliteOptions) -> None:
        super().__init__(options)
        self.instance_id = ""
        self._notifier = ChangeNotifier()
        self._watcher = ChangeWatcher(options, self._notifier)

    @property
    def keeps_deleted_bytes(self) -> bool:
        """What is only in memory is gone when it is freed."""
        return not self._options.in_memory

    async def wipe(self) -> None:
        writer = self._require_writer()
        if self._options.in_memory:
            return
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._options.busy_timeout
        try:
            # Others write between two attempts, which hold them up.
            while not await writer.submit_exclusive(wipe_deleted_rows):
                if clock() > deadline:
                    raise StoreBusyError("another process has been reading for too long.")
                await asyncio.sleep(WIPE_SECONDS)
        except StoreError as error:
            raise type(error)(
                f"The rows are deleted, but traces of them are still in the files of {self._options.path}: {error}"
                " Delete again to have them wiped; so does whoever opens the file next."
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
        """The process table does."""

    async def is_instance_alive(self, instance_id: str) -> bool | None:
        return is_instance_alive(instance_id)

    def _begin(self) -> Mapping[str, Statement]:
        # Here, not when it was made: a process that was forked in between is another instance.
        self.instance_id = new_instance_id()
        self._notifier = ChangeNotifier()
        self._watcher = ChangeWatcher(self._options, self._notifier)
        return statements("sqlite")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        migrate(connection, self._options)

    def _finish_previous_work(self, connection: sqlite3.Connection) -> bool:
        return self._options.in_memory or try_wipe_deleted_rows(connection)

    def _on_events(self) -> None:
        self._notifier.notify()

    def _end(self) -> None:
        self._notifier.close()
        self._watcher.close()

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(
            f"{self._options.path} is not open: use `async with Tellback(...)`, and the handles inside the block."
        )


class SqliteStore(SqlStore):
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
        super().__init__(f"sqlite:///{path}", engine, positions_after_commit=False)
