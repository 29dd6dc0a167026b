"""The worker that looks for jobs itself: it needs nothing but the store."""

from __future__ import annotations

import asyncio
import logging
import time

from tellback.background import cancel_and_wait
from tellback.errors import StoreClosedError
from tellback.jobs.dead import requeue_orphaned_jobs
from tellback.jobs.dispatching import Dispatcher
from tellback.jobs.worker import Worker, wait_for_first
from tellback.types.jobs import Job

log = logging.getLogger("tellback.jobs")


class EmbeddedWorker(Worker):
    """Runs the jobs of a store inside this process, beside other processes that do the same."""

    _running: set[asyncio.Task[float | None]]
    _changed: asyncio.Event

    async def _work(self) -> None:
        self._running, self._changed = set(), asyncio.Event()
        dispatcher = Dispatcher(self._store, self._options, self._clock, self._notify, self._urgent)
        loops = {"dispatching events": dispatcher.run, "looking for dead workers": self._requeue_orphans}
        tasks = [asyncio.create_task(self._supervise(activity, run), name=activity) for activity, run in loops.items()]
        try:
            await self._supervise("claiming jobs", self._claim_jobs)
        finally:
            await cancel_and_wait(*tasks)
            await self._finish_running()

    async def _notify(self) -> None:
        self._changed.set()

    async def _claim_jobs(self) -> None:
        while not self._stop_event.is_set():
            self._changed.clear()
            job, pause = await self._claim_next()
            if job is None:
                await wait_for_first(self._changed, self._stop_event, timeout_seconds=pause)
            else:
                self._start_job(job)

    async def _claim_next(self) -> tuple[Job | None, float | None]:
        """The next job, or None and how long to wait for news: for ever, while there is no room for another."""
        options = self._options
        if len(self._running) >= options.concurrency:
            return None, None
        count, due = await self._store.jobs.backlog(at=time.time())
        job = await self._runner.claim() if count else None  # claiming writes, counting does not
        return job, options.poll if due is None else min(options.poll, max(0.01, due - time.time()))

    def _start_job(self, job: Job) -> None:
        task = asyncio.create_task(self._runner.run(job), name=f"run {job.id}")
        self._running.add(task)
        task.add_done_callback(self._on_job_done)

    def _on_job_done(self, task: asyncio.Task[float | None]) -> None:
        self._running.discard(task)
        self._changed.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosedError):
            log.error("what came of %s could not be stored", task.get_name(), exc_info=error)

    async def _requeue_orphans(self) -> None:
        while True:
            if await requeue_orphaned_jobs(self._store, self._clock):
                self._changed.set()
            await asyncio.sleep(self._options.poll)

    async def _finish_running(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=self._options.grace)
        await cancel_and_wait(*self._running)
