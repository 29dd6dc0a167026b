"""The one thread that writes: whatever has queued up is committed together.

SQLite takes one writer at a time, and a commit costs far more than the statements in it. So operations queue up while
the thread is busy, and the next transaction takes them all. One that fails leaves no trace and does not disturb the
others: most fail before they have changed anything, and if one had, the group is undone and run again with a savepoint
around each. Without savepoints the usual group is a fifth faster. A caller hears of success only after the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tellback.errors import StoreClosedError
from tellback.stores.catalogue import Statement
from tellback.stores.engine import Make, Operation, T
from tellback.stores.sqlite.connection import SqliteOptions, run
from tellback.stores.sqlite.failures import store_error

log = logging.getLogger("tellback.stores")

GROUP = 256
"""About the most operations in one transaction: each waits for all of them."""


Alone = Callable[[sqlite3.Connection], bool]
"""Work that takes no part in transactions; False if it is to be tried again."""


class _Entangled(Exception):
    """An operation failed after it had changed something, in one transaction with others."""


class _Job:
    """An operation in the queue, or work for the connection outside of transactions, and who waits for it."""

    __slots__ = ("alone", "error", "future", "loop", "make", "result", "told", "values")

    def __init__(self, make: Make[Any], values: dict[str, Any], future: Any, loop: Any, alone: Alone | None) -> None:
        self.make = make
        self.values = values
        self.future = future
        self.loop = loop
        self.alone = alone
        self.result: Any = None
        self.told = False
        self.error: BaseException | None = None


class Writer:
    """Runs operations on one connection, in groups, on a thread of its own.

    `told` is called after new events; `first` is done before anything else, if it can be.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        options: SqliteOptions,
        statements: Mapping[str, Statement],
        told: Callable[[], None],
        first: Alone | None = None,
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._options = options
        self._statements = statements
        self._told = told
        self._first = first
        self._jobs: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._gathering: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="tellback-writer", daemon=True)
        self._thread.start()

    def submit(self, make: Make[T], values: dict[str, Any]) -> asyncio.Future[T]:
        """Queue an operation; the future is done once it is committed. Cancelled before its turn, it is not run."""
        return self._queue(make, values, None)

    def submit_alone(self, work: Alone) -> asyncio.Future[bool]:
        """Queue work that is done between two transactions."""
        return self._queue(_nothing, {}, work)

    def _queue(self, make: Make[Any], values: dict[str, Any], alone: Alone | None) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        # Handed over once the tasks that are ready have had their say: they form one group, and the writer does not
        # compete with them for the interpreter.
        others = _ready(loop)
        with self._lock:
            if self._closed:
                raise self._closed_error()
            gathered = self._gathering.get(loop)
            if gathered is None:
                gathered = self._gathering[loop] = []
                if others:
                    loop.call_soon(self._hand_over, loop)
            else:
                others -= 1  # the call of our own
            gathered.append(_Job(make, values, future, loop, alone))
        if not others:
            self._hand_over(loop)
        return future

    def close(self) -> None:
        """Finish what is queued, end the thread and close the connection; waits for it."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for gathered in self._gathering.values():
                    self._jobs.put(gathered)
                self._gathering.clear()
                self._jobs.put(None)
        self._thread.join()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            gathered = self._gathering.pop(loop, None)
            if gathered is not None and not self._closed:
                self._jobs.put(gathered)
                return
        for job in gathered or ():
            job.error = self._closed_error()
        _settle(gathered or [])

    def _work(self) -> None:
        try:
            self._begin()
            while jobs := self._next():
                grouped = [job for job in jobs if job.alone is None]
                if grouped:
                    self._run(grouped)
                    self._deliver(grouped)
                if any(job.told and job.error is None for job in grouped):
                    self._told()
                for job in jobs:
                    if job.alone is not None:
                        self._run_alone(job, job.alone)
                        self._deliver([job])
        except BaseException:
            log.exception("the writer of %s has failed", self._options.path)
            self._fail_all()
            raise
        finally:
            self._connection.close()

    def _begin(self) -> None:
        """Finish what the last writer could not; if that fails, another one will."""
        try:
            done = self._first is None or self._first(self._connection)
        except sqlite3.Error:
            log.info(
                "%s could not be wiped of what was erased; the next to write will", self._options.path, exc_info=True
            )
        else:
            if not done:
                log.info("the log of %s is being read and will be wiped later", self._options.path)

    def _next(self) -> list[_Job]:
        """All that has queued up; empty when it is time to end."""
        handed = self._jobs.get()
        jobs: list[_Job] = []
        while handed is not None:
            jobs.extend([job for job in handed if not job.future.cancelled()])
            if len(jobs) >= GROUP:
                return jobs
            try:
                handed = self._jobs.get_nowait()
            except queue.Empty:
                if jobs:
                    return jobs
                handed = self._jobs.get()
        if jobs:
            self._jobs.put(None)  # come back to it
        return jobs

    def _run(self, jobs: list[_Job]) -> None:
        try:
            try:
                self._run_group(jobs, self._run_bare)
            except _Entangled:
                self._undo()
                self._run_group(jobs, self._run_in_savepoint)
        except BaseException as error:  # noqa: BLE001
            # Nothing of the group was kept, so everyone in it must hear of it, whatever it was.
            for job in jobs:
                job.error = job.error or self._named(error)
            self._undo()

    def _run_group(self, jobs: list[_Job], run_one: Callable[[_Job], None]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            job.error = None
            run_one(job)
        self._connection.execute("COMMIT")

    def _run_alone(self, job: _Job, work: Alone) -> None:
        try:
            job.result = work(self._connection)
        except BaseException as error:  # noqa: BLE001
            job.error = self._named(error)  # whoever waits must hear of it, whatever it was

    def _run_bare(self, job: _Job) -> None:
        before = self._connection.total_changes
        try:
            job.result, job.told = run(self._cursor, self._statements, job.values, job.make())
        except BaseException as error:
            job.error = self._named(error)
            if self._connection.total_changes != before or not self._connection.in_transaction:
                raise _Entangled from error

    def _run_in_savepoint(self, job: _Job) -> None:
        execute = self._connection.execute
        execute("SAVEPOINT operation")
        try:
            job.result, job.told = run(self._cursor, self._statements, job.values, job.make())
        except BaseException as error:
            job.error = self._named(error)
            if not self._connection.in_transaction:
                raise  # SQLite has undone everything, not only this operation
            execute("ROLLBACK TO operation")
        execute("RELEASE operation")

    def _named(self, error: BaseException) -> BaseException:
        return store_error(error, self._options.path) if isinstance(error, sqlite3.Error) else error

    def _undo(self) -> None:
        if self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def _deliver(self, jobs: list[_Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        for job in jobs:
            by_loop.setdefault(job.loop, []).append(job)
        for loop, done in by_loop.items():
            with contextlib.suppress(RuntimeError):  # that loop is closed, and with it everyone who waited
                loop.call_soon_threadsafe(_settle, done)

    def _fail_all(self) -> None:
        """Nobody is left waiting for a thread that is gone."""
        with self._lock:
            self._closed = True
        with contextlib.suppress(queue.Empty):
            while True:
                jobs = self._jobs.get_nowait() or []
                for job in jobs:
                    job.error = self._closed_error()
                self._deliver(jobs)

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(f"{self._options.path} has been closed.")


def _nothing() -> Operation[None]:
    """An operation that does nothing."""
    yield from ()


def _ready(loop: asyncio.AbstractEventLoop) -> int:
    """How many callbacks wait for the next pass; loops other than asyncio's own do not tell, so one at least."""
    waiting = getattr(loop, "_ready", None)
    return len(waiting) if waiting is not None else 1


def _settle(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue  # cancelled meanwhile
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
