"""procrastinate's worker with our tasks: run a job, and take over from dead workers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from procrastinate import jobs, retry, worker

from tellback.errors import StoreError
from tellback.jobs.dead import requeue_orphaned_jobs
from tellback.jobs.options import WorkerOptions
from tellback.jobs.postgres.queue import QUEUE_NAME, RUN_JOB_TASK, DeliveryQueue, create_app, is_delivery_gone
from tellback.jobs.postgres.schema import prepare_schema
from tellback.jobs.runner import RETRY_SECONDS, JobRunner
from tellback.stores import Store
from tellback.stores.postgres.store import QueueSettings
from tellback.types.jobs import JobStatus

log = logging.getLogger("tellback.jobs")

REAP_TASK = "tellback.reap"
REAP_SECONDS = 30
REAP_PRIORITY = 10
"""Before jobs: what waits for a dead worker would wait for ever."""
MAX_DELIVERY_PAUSE = 1.0
SECOND_FETCH_SECONDS = 0.05
"""After a job has ended its successor may run, which nobody announces; a look under way may have come too early."""


class _RedeliverAt(Exception):
    """The job is to be delivered again at a moment."""

    def __init__(self, at: float) -> None:
        self.at = at
        super().__init__(f"again at {at:.3f}")


class _Redelivery(retry.BaseRetryStrategy):
    """Keeps a delivery, and its place among those of its space, until the job is over."""

    def get_retry_decision(self, *, exception: BaseException, job: jobs.Job) -> retry.RetryDecision:
        at = time.time() + RETRY_SECONDS
        if isinstance(exception, _RedeliverAt):
            at = exception.at
        elif isinstance(exception, asyncio.CancelledError):  # the worker stops
            at = time.time()
        elif not isinstance(exception, StoreError):
            log.error("a delivery failed", exc_info=exception)
        return retry.RetryDecision(retry_at=datetime.fromtimestamp(at, UTC))


class _ProcrastinateWorker(worker.Worker):
    """procrastinate's worker, which can also be told to look for jobs at once."""

    def fetch_now(self) -> None:
        """Look for jobs now."""
        self._new_job_event.set()


class QueueService:
    """One worker on the queue, from its opening to its end."""

    def __init__(
        self,
        settings: QueueSettings,
        store: Store,
        runner: JobRunner,
        options: WorkerOptions,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._store = store
        self._runner = runner
        self._options = options
        self._clock = clock
        self._app = create_app(settings, pool_size=options.concurrency + 2)
        self._queue = DeliveryQueue(self._app)
        self._delivery_lock = asyncio.Lock()
        self._stopped = False
        self._delivery_seconds = 0.0
        self._second_fetch: asyncio.TimerHandle | None = None
        self._register_tasks()
        self._worker: Any = _ProcrastinateWorker(
            self._app,
            queues=[QUEUE_NAME],
            name="tellback",
            concurrency=options.concurrency,
            fetch_job_polling_interval=options.poll,
            abort_job_polling_interval=3600.0,  # jobs are cancelled in our table
            shutdown_graceful_timeout=options.grace,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=options.heartbeat / 2,
            stalled_worker_timeout=options.lease / 2,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """With its tables there and its connections open."""
        await prepare_schema(self._settings)
        async with self._app.open_async():
            yield

    async def run(self) -> None:
        """Work until `stop`, or until the connection is lost."""
        if not self._stopped:  # a worker that begins forgets that it was told to stop before
            await self._worker.run()

    def stop(self) -> None:
        """Let running jobs come to an end, for a while, and put the others back."""
        self._stopped = True
        self._worker.stop()

    async def deliver(self) -> None:
        """See that every job that waits is in the queue; the longer that takes, the more seldom."""
        async with self._delivery_lock:
            await asyncio.sleep(min(MAX_DELIVERY_PAUSE, self._delivery_seconds * 4))
            started = time.monotonic()
            await self._queue.deliver()
            self._delivery_seconds = time.monotonic() - started

    def _register_tasks(self) -> None:
        self._app.task(name=RUN_JOB_TASK, queue=QUEUE_NAME, retry=_Redelivery())(self._run_job)
        reap: Any = self._app.task(name=REAP_TASK, queue=QUEUE_NAME, queueing_lock=REAP_TASK, priority=REAP_PRIORITY)(
            self._reap
        )
        every = min(REAP_SECONDS, max(1, round(self._options.heartbeat * 1.5)))
        self._app.periodic(cron=f"* * * * * */{every}")(reap)

    async def _run_job(self, job_id: str) -> None:
        current: Any = asyncio.current_task()
        current.add_done_callback(self._on_delivery_done)
        job = await self._runner.claim(job_id)
        retry_at = await self._next_attempt(job_id) if job is None else await self._runner.run(job)
        if retry_at is not None:
            raise _RedeliverAt(retry_at)

    async def _next_attempt(self, job_id: str) -> float | None:
        """When to try a job again that could not be had; None if it is over."""
        job = await self._store.jobs.get(None, job_id)
        if job is None or job.status.is_finished:
            return None
        now = time.time()
        if job.status is JobStatus.RUNNING:
            return now + self._options.heartbeat  # by another: it may die
        due = job.due_at.timestamp()
        if due > now:
            await asyncio.sleep(min(RETRY_SECONDS, due - now))  # the server's clock is ahead: it would come at once
            return due
        await self._queue.redeliver_last(job, now + RETRY_SECONDS)
        return None

    def _on_delivery_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not is_delivery_gone(error):  # one that is over was erased with its user
            log.warning("a delivery could not be ended; the worker starts again", exc_info=error)
            self._worker.stop()
            return
        self._worker.fetch_now()
        if self._second_fetch is None:
            self._second_fetch = asyncio.get_running_loop().call_later(SECOND_FETCH_SECONDS, self._fetch_again)

    def _fetch_again(self) -> None:
        self._second_fetch = None
        self._worker.fetch_now()

    async def _reap(self, timestamp: int) -> None:
        released = await requeue_orphaned_jobs(self._store, self._clock)
        await self._queue.reclaim(released, self._options.lease / 2)
        self._worker.fetch_now()
