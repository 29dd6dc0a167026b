"""What all workers have in common: they begin when there is work, outlive mistakes, and stop in good order."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from tellback.background import stopped
from tellback.errors import StoreClosedError, StoreError, StoreReadOnlyError
from tellback.jobs.options import DEFAULTS, WorkerOptions
from tellback.jobs.runner import RETRY_SECONDS, Handler, Runner
from tellback.jobs.schedule import Schedule, Schedules
from tellback.stores import Store
from tellback.types.times import utc_now

log = logging.getLogger("tellback.jobs")


class Worker(ABC):
    """Brings jobs to their handlers, by kind.

    Until there is a job, or an event that may become one, it only looks for some now and then: `wake` says that there
    is. Closing gives running jobs `options.grace` seconds, then puts them back in the queue.
    """

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        *,
        schedules: Sequence[Schedule] = (),
        options: WorkerOptions = DEFAULTS,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._runner = Runner(store, handlers, options, clock)
        self._schedules = Schedules(store, schedules)
        self._woken = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopping = asyncio.Event()
        self._life: asyncio.Task[None] | None = None

    @property
    def is_awake(self) -> bool:
        """Whether it has found work."""
        return self._woken.is_set()

    def start(self) -> None:
        """Begin, in the background."""
        if self._life is None:
            # New ones: this may be another event loop than the last time.
            self._stopping, woken = asyncio.Event(), self._woken.is_set()
            self._woken, self._hurry = asyncio.Event(), asyncio.Event()
            if woken:
                self._woken.set()
            self._life = asyncio.create_task(self._live(), name="tellback worker")

    def wake(self) -> None:
        """There is work, or will be soon."""
        self._woken.set()
        self._hurry.set()

    async def close(self) -> None:
        """Stop in good order. It may be started again."""
        life = self._life
        if life is not None:
            self._stopping.set()
            await asyncio.wait({life})  # cancelled here, it can be closed again
            self._life = None
            if not life.cancelled() and life.exception() is not None:
                log.error("the worker on %s had broken", self._store.url, exc_info=life.exception())

    async def _live(self) -> None:
        # Schedules come round whether there are jobs or not.
        ticking = asyncio.create_task(self._kept_up("running schedules", self._ticking))
        try:
            await self._until_needed()
            if not self._stopping.is_set():
                log.debug("the worker on %s begins", self._store.url)
                await self._work()
        finally:
            await asyncio.wait({ticking}, timeout=self._options.grace)
            await stopped(ticking)

    async def _until_needed(self) -> None:
        while not self._stopping.is_set() and not self._woken.is_set():
            try:
                if await self._is_needed():
                    self._woken.set()
            except StoreClosedError:
                return
            except StoreError:
                log.debug("could not look for work on %s", self._store.url, exc_info=True)
            await first_of(self._woken, self._stopping, seconds=self._options.poll)

    async def _ticking(self) -> None:
        # Not at once: a process that is gone in a moment should not take what it cannot finish.
        pause = min(self._options.poll, self._schedules.pause)
        while self._schedules:
            await first_of(self._stopping, seconds=pause)
            if self._stopping.is_set():
                return
            await self._schedules.tick()
            pause = self._schedules.pause

    async def _is_needed(self) -> bool:
        count, due = await self._store.jobs.waiting(at=time.time())
        return count > 0 or due is not None or await self._store.jobs.pending()

    @abstractmethod
    async def _work(self) -> None:
        """Bring jobs to their handlers until `_stopping` is set, then stop in good order."""

    async def _kept_up(self, what: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run it again whenever it breaks, until it ends by itself, or the store is closed or takes no changes."""
        while True:
            try:
                await run()
            except (StoreClosedError, StoreReadOnlyError):
                return
            except StoreError:
                log.warning("%s is interrupted; trying again", what, exc_info=True)
            except Exception:  # a worker outlives mistakes: the log tells of them
                log.exception("%s failed; trying again", what)
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)


async def first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    """Wait until one of them is set, or the time is up."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stopped(*waits)
