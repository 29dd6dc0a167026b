"""The SQLite engine: one writer thread, a few reading ones."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

from tellback.errors import (
    ConfigurationError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreReadOnlyError,
)
from tellback.stores.catalogue import Statement, statements
from tellback.stores.engine import Make, T, bound
from tellback.stores.sqlite import owners, wiping
from tellback.stores.sqlite.connection import SqliteOptions, connect, migrate, run
from tellback.stores.sqlite.failures import store_error
from tellback.stores.sqlite.watcher import Watcher
from tellback.stores.sqlite.writer import Writer
from tellback.stores.waking import Bell
from tellback.types.scope import Scope

WIPE_SECONDS = 0.1
"""How long to wait between two attempts to empty the log."""


class SqliteEngine:
    """Runs operations on a SQLite file, or in memory."""

    search: Literal["none", "words", "meaning"] = "none"

    def __init__(self, options: SqliteOptions) -> None:
        self.owner = ""
        self._pid = 0
        self._options = options
        self._impatient = replace(options, busy_timeout=0.0)
        self._statements: Mapping[str, Statement] = {}
        self._changing = asyncio.Lock()
        self._bell = Bell()
        self._watcher = Watcher(options, self._bell)
        self._writer: Writer | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    @property
    def leaves_traces(self) -> bool:
        """What is only in memory is gone when it is freed."""
        return not self._options.in_memory

    async def open(self) -> None:
        async with self._changing:
            if self._readers is not None:
                return
            if sqlite3.sqlite_version_info < (3, 35):
                raise ConfigurationError(
                    f"Tellback needs SQLite 3.35 or later; this Python has {sqlite3.sqlite_version}."
                )
            # Here, not when it was made: a process that was forked in between is another owner.
            self.owner, self._pid = owners.new_owner(), os.getpid()
            self._statements = statements("sqlite")
            connection = await asyncio.to_thread(self._prepare)
            self._bell = Bell()
            self._watcher = Watcher(self._options, self._bell)
            self._readers = ThreadPoolExecutor(self._options.readers, thread_name_prefix="tellback-reader")
            if self._options.read_only:
                connection.close()
            else:
                first = None if self._options.in_memory else wiping.wipe_at_once
                self._writer = Writer(connection, self._options, self._statements, self._bell.ring, first)

    async def close(self) -> None:
        async with self._changing:
            readers, self._readers = self._readers, None
            writer, self._writer = self._writer, None
            if readers is None:
                return
            self._bell.close()
            # Not to be left half done: whoever is cancelled here leaves threads that end by themselves.
            await asyncio.shield(asyncio.to_thread(self._end, readers, writer, self._watcher))

    async def read(self, scope: Scope | None, make: Make[T], *, brief: bool = False) -> T:
        readers = self._opened()
        if self._options.in_memory:  # only the writer's connection sees it
            return await self.write(scope, make)
        if brief:
            # Waking a reader takes ten times as long as the lookup itself. Where it would have to wait, a reader waits.
            with contextlib.suppress(StoreBusyError):
                return self._glance(scope, make)
        try:
            work = asyncio.get_running_loop().run_in_executor(readers, self._read, scope, make)
        except RuntimeError:  # closed by another thread meanwhile
            raise self._closed() from None
        return await work

    async def write(self, scope: Scope | None, make: Make[T]) -> T:
        return await self._writing().submit(make, bound(scope))

    async def wipe(self) -> None:
        writer = self._writing()
        if self._options.in_memory:
            return
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._options.busy_timeout
        try:
            # Others write between two attempts, which hold them up.
            while not await writer.submit_alone(wiping.wipe):
                if clock() > deadline:
                    raise StoreBusyError("another process has been reading for too long.")
                await asyncio.sleep(WIPE_SECONDS)
        except StoreError as error:
            raise type(error)(
                f"The rows are deleted, but traces of them are still in the files of {self._options.path}: {error}"
                " Delete again to have them wiped; so does whoever opens the file next."
            ) from error

    async def changes(self) -> AsyncGenerator[None, None]:
        self._opened()
        rings = self._bell.rings()
        try:
            async for ring in rings:
                if not self._options.in_memory:
                    self._watcher.ensure()
                yield ring
        finally:
            await rings.aclose()

    async def show_alive(self) -> None:
        """The process table does."""

    async def is_alive(self, owner: str) -> bool | None:
        return owners.is_alive(owner)

    def _prepare(self) -> sqlite3.Connection:
        try:
            connection = connect(self._options)
        except sqlite3.Error as error:
            raise store_error(error, self._options.path) from error
        try:
            migrate(connection, self._options)
        except sqlite3.Error as error:
            connection.close()
            raise store_error(error, self._options.path) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _glance(self, scope: Scope | None, make: Make[T]) -> T:
        """Look up a row or two, each as it is now."""
        try:
            return run(self._connection(self._impatient).cursor(), self._statements, bound(scope), make())[0]
        except sqlite3.Error as error:
            raise store_error(error, self._options.path) from error

    def _connection(self, options: SqliteOptions) -> sqlite3.Connection:
        """This thread's own."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(options)
            self._connections.append(connection)
        return connection

    def _read(self, scope: Scope | None, make: Make[T]) -> T:
        try:
            connection = self._connection(self._options)
            connection.execute("BEGIN")
            try:
                result, _ = run(connection.cursor(), self._statements, bound(scope), make())
                return result
            finally:
                connection.execute("ROLLBACK")  # ends the snapshot; there is nothing to undo
        except sqlite3.Error as error:
            raise store_error(error, self._options.path) from error

    def _end(self, readers: ThreadPoolExecutor, writer: Writer | None, watcher: Watcher) -> None:
        if writer is not None:
            writer.close()
        watcher.close()
        readers.shutdown()
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._local = threading.local()

    def _writing(self) -> Writer:
        self._opened()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self._options.path} was opened with mode=ro: open it without to write.")
        return self._writer

    def _opened(self) -> ThreadPoolExecutor:
        """The readers, if this process may use them: threads do not come along when a process is forked."""
        if self._readers is None:
            raise self._closed()
        if self._pid != os.getpid():
            raise StoreError(f"{self._options.path} was opened before this process was forked: open it again here.")
        return self._readers

    def _closed(self) -> StoreClosedError:
        return StoreClosedError(
            f"{self._options.path} is not open: use `async with Tellback(...)`, and the handles inside the block."
        )
