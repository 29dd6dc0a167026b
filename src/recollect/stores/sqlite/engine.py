"""The SQLite engine: one writer thread, a few reading ones."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from recollect.errors import ConfigurationError, StoreClosedError, StoreReadOnlyError
from recollect.stores.catalogue import Statement, statements
from recollect.stores.engine import Make, T, bound
from recollect.stores.sqlite import owners
from recollect.stores.sqlite.connection import SqliteOptions, connect, migrate, run
from recollect.stores.sqlite.failures import store_error
from recollect.stores.sqlite.writer import Writer
from recollect.stores.waking import Bell
from recollect.types.scope import Scope

log = logging.getLogger("recollect.stores")

WATCH_SECONDS = 0.1
"""How often the file is looked at for other processes' commits, while someone waits for them."""


class SqliteEngine:
    """Runs operations on a SQLite file, or in memory."""

    def __init__(self, options: SqliteOptions) -> None:
        self.owner = owners.new_owner()
        self._options = options
        self._statements: Mapping[str, Statement] = {}
        self._bell = Bell()
        self._writer: Writer | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._watch: asyncio.Task[None] | None = None
        self._watching: sqlite3.Connection | None = None

    async def open(self) -> None:
        if self._readers is not None:
            return
        if sqlite3.sqlite_version_info < (3, 35):
            raise ConfigurationError(f"Recollect needs SQLite 3.35 or later; this Python has {sqlite3.sqlite_version}.")
        self._statements = statements("sqlite")
        connection = await asyncio.to_thread(self._prepare)
        self._bell = Bell()
        self._readers = ThreadPoolExecutor(self._options.readers, thread_name_prefix="recollect-reader")
        if self._options.read_only:
            connection.close()
        else:
            self._writer = Writer(connection, self._options, self._statements, self._bell.ring)

    async def close(self) -> None:
        readers, self._readers = self._readers, None
        writer, self._writer = self._writer, None
        if readers is None:
            return
        self._bell.close()
        if self._watch is not None and not self._watch.get_loop().is_closed():
            self._watch.cancel()
        if writer is not None:
            await asyncio.wrap_future(writer.close())
        await asyncio.to_thread(readers.shutdown)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._watching = None
        self._local = threading.local()

    async def read(self, scope: Scope | None, make: Make[T]) -> T:
        if self._readers is None:
            raise self._closed()
        if self._options.in_memory:  # only the writer's connection sees it
            return await self.write(scope, make)
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, scope, make)

    async def write(self, scope: Scope | None, make: Make[T]) -> T:
        if self._readers is None:
            raise self._closed()
        if self._writer is None:
            raise StoreReadOnlyError(f"{self._options.path} was opened with mode=ro: open it without to write.")
        return await self._writer.submit(make, bound(scope))

    async def changes(self) -> AsyncIterator[None]:
        if self._readers is None:
            raise self._closed()
        rings = self._bell.rings()
        if not self._options.in_memory and not self._is_watching():
            self._watch = asyncio.create_task(self._watch_file())
        try:
            async for ring in rings:
                yield ring
        finally:
            await rings.aclose()  # type: ignore[attr-defined]

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

    def _read(self, scope: Scope | None, make: Make[T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = connect(self._options)
                self._connections.append(connection)
            connection.execute("BEGIN")
            try:
                return run(connection, self._statements, bound(scope), make())
            finally:
                connection.execute("ROLLBACK")  # ends the snapshot; there is nothing to undo
        except sqlite3.Error as error:
            raise store_error(error, self._options.path) from error

    def _is_watching(self) -> bool:
        return self._watch is not None and not self._watch.done() and not self._watch.get_loop().is_closed()

    async def _watch_file(self) -> None:
        """Ring for commits of other processes: SQLite keeps a counter of them, and tells nobody."""
        loop = asyncio.get_running_loop()
        seen: int | None = None
        while self._readers is not None and (seen is None or self._bell.has_listeners):
            try:
                version = await loop.run_in_executor(self._readers, self._data_version)
            except sqlite3.Error:  # locked for a moment: look again in the next round
                log.debug("could not look for changes of %s", self._options.path, exc_info=True)
            else:
                if version != seen:
                    seen = version
                    self._bell.ring()
            await asyncio.sleep(WATCH_SECONDS)

    def _data_version(self) -> int:
        """The counter means something only within one connection, so this has its own."""
        if self._watching is None:
            self._watching = connect(self._options)
            self._connections.append(self._watching)
        return int(self._watching.execute("PRAGMA data_version").fetchone()[0])

    def _closed(self) -> StoreClosedError:
        return StoreClosedError(
            f"{self._options.path} is not open: use `async with Recollect(...)`, and the handles inside the block."
        )
