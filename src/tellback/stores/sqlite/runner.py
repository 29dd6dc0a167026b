"""Runs operations on a SQLite file, or in memory: one writer thread, some reader threads, and their connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreError, StoreReadOnlyError
from tellback.stores.catalogue import Statement
from tellback.stores.engine import OperationFactory, T, scope_values
from tellback.stores.sqlite.connection import SqliteOptions, connect, run_operation, to_store_error
from tellback.stores.sqlite.writer import WriterThread
from tellback.types.access import Scope

MIN_VERSION = (3, 35)


class SqliteRunner:
    """Runs operations; what is written together is committed together. A subclass says which statements there are."""

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
        """Prepare for an opening; gives the statements that operations name."""
        raise NotImplementedError

    def _closed_error(self) -> StoreClosedError:
        raise NotImplementedError

    def _connect(self, options: SqliteOptions) -> sqlite3.Connection:
        return connect(options)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        """Bring the tables up to date, before anything else is done."""

    def _finish_previous_work(self, connection: sqlite3.Connection) -> bool:
        """Do what the last writer could not; False if it has to wait again."""
        return True

    def _on_events(self) -> None:
        """Events were written."""

    def _end(self) -> None:
        """End what a subclass has begun; called on a thread."""

    async def open(self) -> None:
        async with self._lifecycle_lock:
            if self._readers is not None:
                return
            if sqlite3.sqlite_version_info < MIN_VERSION:
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
                # Not to be left half done: whoever is cancelled here leaves threads that end by themselves.
                await asyncio.shield(asyncio.to_thread(self._close_threads, readers, writer))

    async def read(self, scope: Scope | None, make: OperationFactory[T], *, brief: bool = False) -> T:
        readers = self._require_readers()
        if self._options.in_memory:  # only the writer's connection sees it
            return await self.write(scope, make)
        if brief:
            # Waking a reader takes ten times as long as the lookup itself. Where it would have to wait, a reader waits.
            with contextlib.suppress(StoreBusyError):
                return self._read_inline(scope, make)
        try:
            work = asyncio.get_running_loop().run_in_executor(readers, self._read, scope, make)
        except RuntimeError:  # closed by another thread meanwhile
            raise self._closed_error() from None
        return await work

    async def write(self, scope: Scope | None, make: OperationFactory[T]) -> T:
        return await self._require_writer().submit(make, scope_values(scope))

    def _prepare(self) -> sqlite3.Connection:
        try:
            connection = self._connect(self._options)
        except sqlite3.Error as error:
            raise to_store_error(error, self._options.path) from error
        try:
            self._migrate(connection)
        except sqlite3.Error as error:
            connection.close()
            raise to_store_error(error, self._options.path) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _read_inline(self, scope: Scope | None, make: OperationFactory[T]) -> T:
        """Look up a row or two, each as it is now."""
        try:
            return run_operation(
                self._thread_connection(self._nowait_options).cursor(), self._statements, scope_values(scope), make()
            )[0]
        except sqlite3.Error as error:
            raise to_store_error(error, self._options.path) from error

    def _thread_connection(self, options: SqliteOptions) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect(options)
            self._connections.append(connection)
        return connection

    def _read(self, scope: Scope | None, make: OperationFactory[T]) -> T:
        try:
            connection = self._thread_connection(self._options)
            connection.execute("BEGIN")
            try:
                result, _ = run_operation(connection.cursor(), self._statements, scope_values(scope), make())
                return result
            finally:
                connection.execute("ROLLBACK")  # ends the snapshot; there is nothing to undo
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
            raise StoreReadOnlyError(f"{self._options.path} was opened with mode=ro: open it without to write.")
        return self._writer

    def _require_readers(self) -> ThreadPoolExecutor:
        """The readers, if this process may use them: threads do not come along when a process is forked."""
        if self._readers is None:
            raise self._closed_error()
        if self._pid != os.getpid():
            raise StoreError(f"{self._options.path} was opened before this process was forked: open it again here.")
        return self._readers
