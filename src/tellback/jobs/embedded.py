"""The worker that looks for jobs itself: it needs nothing but the store."""

from __future__ import annotations

import asyncio
import logging
import time

from tellback.background import stopped
from tellback.errors import StoreClosedError
from tellback.jobs.dead import release_dead
from tellback.jobs.dispatching import Dispatcher
from tellback.jobs.worker import Worker, first_of
from tellback.types.jobs import Job

log = logging.getLogger("tellback.jobs")


class EmbeddedWorker(Worker):
    """Runs the jobs of a store inside this process, beside other processes that do the same."""

    _running: set[asyncio.Task[float | None]]
    _news: asyncio.Event

    async def _work(self) -> None:
        self._running, self._news = set(), asyncio.Event()
        dispatcher = Dispatcher(self._store, self._options, self._clock, self._tell, self._hurry)
        loops = {"dispatching events": dispatcher.run, "looking for dead workers": self._reaping}
        tasks = [asyncio.create_task(self._kept_up(what, run), name=what) for what, run in loops.items()]
        try:
            await self._kept_up("claiming jobs", self._claiming)
        finally:
            await stopped(*tasks)
            await self._wind_down()

    async def _tell(self) -> None:
        self._news.set()

    async def _claiming(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            job, pause = await self._next()
            if job is None:
                await first_of(self._news, self._stopping, seconds=pause)
            else:
                self._begin(job)

    async def _next(self) -> tuple[Job | None, float | None]:
        """The next job, or None and how long to wait for news: for ever, while there is no room for another."""
        options = self._options
        if len(self._running) >= options.concurrency:
            return None, None
        count, due = await self._store.jobs.waiting(at=time.time())
        job = await self._runner.claim() if count else None  # claiming writes, counting does not
        return job, options.poll if due is None else min(options.poll, max(0.01, due - time.time()))

    def _begin(self, job: Job) -> None:
        task = asyncio.create_task(self._runner.run(job), name=f"run {job.id}")
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[float | None]) -> None:
        self._running.discard(task)
        self._news.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosedError):
            log.error("what came of %s could not be stored", task.get_name(), exc_info=error)

    async def _reaping(self) -> None:
        while True:
            if await release_dead(self._store, self._clock):
                self._news.set()
            await asyncio.sleep(self._options.poll)

    async def _wind_down(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=self._options.grace)
        await stopped(*self._running)
