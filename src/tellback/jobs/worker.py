"""Workers deliver jobs to their handlers, create jobs from events, and run schedules.

This module has the common base, the polling `EmbeddedWorker`, the `QueueWorker` of PostgreSQL, and `open_worker`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from tellback.concurrency import cancel_and_wait
from tellback.errors import StoreClosedError, StoreError, StoreReadOnlyError
from tellback.jobs.runner import DEFAULT_OPTIONS, RETRY_SECONDS, Handler, JobRunner, WorkerOptions
from tellback.stores import Store
from tellback.types.ids import utc_now
from tellback.types.jobs import Job

if TYPE_CHECKING:
    from tellback.jobs.postgres import QueueService

log = logging.getLogger("tellback.jobs")

STOP_TIMEOUT = 5.0
"""How many seconds a stopping queue may take in addition to the grace time of its jobs."""

MAX_RETRY_PAUSE = 30.0
"""The longest pause before the next attempt to open the queue."""

LIVENESS_CHECKS = 4
LIVENESS_PAUSE_SECONDS = 0.8
"""The pause between checks of an instance whose state is uncertain. Some stores need several missed heartbeats to be
sure."""

EVENT_BATCH = 100
"""The maximum number of events that one transaction processes. Other writers wait for the transaction."""

DISPATCH_PAUSE_SECONDS = 0.5
"""How long to collect events before they are processed together, to save work. `wake` ends this pause."""

DISPATCH_INTERVAL_SECONDS = 30.0
"""The interval of processing events that create no jobs, so that there are never many unprocessed ones."""

MAX_TICK_SECONDS = 30.0
"""The longest interval of checking whether a schedule is due."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A function to run every `every` seconds, in one process at a time. `name` identifies it across processes.

    >>> async def tidy(): ...
    >>> Schedule("tidy", every=3600, run=tidy).name
    'tidy'
    """

    name: str
    every: float
    run: Callable[[], Awaitable[Any]]


async def requeue_orphaned_jobs(store: Store, clock: Callable[[], datetime], *, patient: bool = True) -> list[Job]:
    """Put jobs of instances that are certainly dead back in the queue, and return them.

    Without `patient`, it checks only once and does not wait.
    """
    released: list[Job] = []
    suspects = [instance_id for instance_id in await store.jobs.running_instances() if instance_id != store.instance_id]
    for check in range(LIVENESS_CHECKS if patient else 1):
        if check and suspects:
            await asyncio.sleep(LIVENESS_PAUSE_SECONDS)
        unknown = []
        for instance_id in suspects:
            alive = await store.is_instance_alive(instance_id)
            if alive is False:
                released += await store.jobs.release(instance_id, now=clock())
            elif alive is None:
                unknown.append(instance_id)
        suspects = unknown
    if released:
        log.warning("Put %d jobs of dead workers back in the queue", len(released))
    return released


class Worker(ABC):
    """Delivers jobs to their handlers, by kind.

    At first, it only checks periodically whether there is work: a job, or an event that may create one. It starts to
    work when there is some, or when `wake` is called. Closing gives running jobs `options.grace` seconds, then puts
    them back in the queue.

    >>> import asyncio
    >>> from tellback.stores import open_store
    >>> async def main():
    ...     store = open_store(":memory:")
    ...     await store.open()
    ...     worker = open_worker(store, {})
    ...     worker.start()
    ...     worker.wake()
    ...     awake = worker.is_awake
    ...     await worker.close()
    ...     await store.close()
    ...     return awake
    >>> asyncio.run(main())
    True
    """

    def __init__(
        self,
        store: Store,
        handlers: Mapping[str, Handler],
        *,
        schedules: Sequence[Schedule] = (),
        options: WorkerOptions = DEFAULT_OPTIONS,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._runner = JobRunner(store, handlers, options, clock)
        self._schedules = tuple(schedules)
        self._next_run: dict[str, float] = {}
        self._next_dispatch = 0.0
        self._wake_event = asyncio.Event()
        self._urgent = asyncio.Event()
        self._stop_event = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_awake(self) -> bool:
        """Whether it has found work, or `wake` was called."""
        return self._wake_event.is_set()

    def start(self) -> None:
        """Start the worker in the background."""
        if self._task is None:
            # Create new events, because this may be a different event loop.
            self._stop_event, was_awake = asyncio.Event(), self._wake_event.is_set()
            self._wake_event, self._urgent = asyncio.Event(), asyncio.Event()
            if was_awake:
                self._wake_event.set()
            self._task = asyncio.create_task(self._run(), name="tellback worker")

    def wake(self) -> None:
        """Notify the worker that there is work, or will be soon."""
        self._wake_event.set()
        self._urgent.set()

    async def close(self) -> None:
        """Stop gracefully. The worker can be started again."""
        task = self._task
        if task is not None:
            self._stop_event.set()
            await asyncio.wait({task})  # if this is cancelled, `close` can be called again
            self._task = None
            if not task.cancelled() and task.exception() is not None:
                log.error("The worker on %s failed", self._store.url, exc_info=task.exception())

    async def _run(self) -> None:
        # Schedules run even if there are no jobs.
        schedule_task = self._start_supervised("running schedules", self._run_schedules)
        try:
            await self._wait_for_work()
            if not self._stop_event.is_set():
                log.debug("The worker on %s started", self._store.url)
                await self._work()
        finally:
            await asyncio.wait({schedule_task}, timeout=self._options.grace)
            await cancel_and_wait(schedule_task)

    async def _wait_for_work(self) -> None:
        while not self._stop_event.is_set() and not self._wake_event.is_set():
            try:
                if await self._has_work():
                    self._wake_event.set()
            except StoreClosedError:
                return
            except StoreError:
                log.debug("Could not look for work on %s", self._store.url, exc_info=True)
            await wait_for_first(self._wake_event, self._stop_event, timeout_seconds=self._options.poll)

    async def _run_schedules(self) -> None:
        interval = min([MAX_TICK_SECONDS, *(schedule.every for schedule in self._schedules)])
        # Wait first, so that a short-lived process does not start something that it cannot finish.
        pause = min(self._options.poll, interval)
        while self._schedules:
            await wait_for_first(self._stop_event, timeout_seconds=pause)
            if self._stop_event.is_set():
                return
            for schedule in self._schedules:
                await self._run_if_due(schedule)
            pause = interval

    async def _run_if_due(self, schedule: Schedule) -> None:
        """Run a schedule if it is due and no other process has claimed it. A failure is logged, and it runs again
        later."""
        at = time.time()
        if at < self._next_run.get(schedule.name, 0.0):
            return  # this process claimed the last run, so the next is not due yet
        if not await self._store.jobs.claim_schedule(schedule.name, at=at, every=schedule.every):
            return
        self._next_run[schedule.name] = at + schedule.every
        try:
            await schedule.run()
        except Exception:
            log.exception("Schedule %r failed; trying again in %g s", schedule.name, schedule.every)

    async def _follow_events(self, on_dispatched: Callable[[], Awaitable[None]]) -> None:
        """Create the jobs for events, until the store is closed.

        `on_dispatched` is called after each change, even if it created no job. When `_urgent` is set, the next change
        is processed without waiting for others.
        """
        changes = self._store.events.changes()
        try:
            async for _ in changes:
                with contextlib.suppress(TimeoutError):
                    # Not `wait_for`, which loses a cancellation that arrives together with `_urgent`.
                    async with asyncio.timeout(DISPATCH_PAUSE_SECONDS):
                        await self._urgent.wait()
                self._urgent.clear()
                await self._dispatch_pending()
                await on_dispatched()
        finally:
            await changes.aclose()

    async def _dispatch_pending(self) -> None:
        jobs, window_length = self._store.jobs, self._options.window_length
        more = True
        while more and (time.monotonic() >= self._next_dispatch or await jobs.has_pending_events()):
            more = (await jobs.dispatch(window_length=window_length, limit=EVENT_BATCH, now=self._clock())).has_more
            self._next_dispatch = time.monotonic() + DISPATCH_INTERVAL_SECONDS

    async def _has_work(self) -> bool:
        count, due = await self._store.jobs.backlog(at=time.time())
        return count > 0 or due is not None or await self._store.jobs.has_pending_events()

    @abstractmethod
    async def _work(self) -> None:
        """Deliver jobs to their handlers until `_stop_event` is set, then stop gracefully."""

    def _start_supervised(self, activity: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.create_task(self._supervise(activity, run), name=activity)

    async def _supervise(self, activity: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a function again whenever it fails, until it returns, or the store is closed or read-only."""
        while True:
            try:
                await run()
            except (StoreClosedError, StoreReadOnlyError):
                return
            except StoreError:
                log.warning("Interrupted while %s; trying again", activity, exc_info=True)
            except Exception:  # a worker survives errors and logs them
                log.exception("Failed while %s; trying again", activity)
            else:
                return
            await asyncio.sleep(RETRY_SECONDS)


async def wait_for_first(*events: asyncio.Event, timeout_seconds: float | None = None) -> None:
    """Wait until one of the events is set, or the time is up."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(*waits)


class EmbeddedWorker(Worker):
    """Runs the jobs of a store inside this process, alongside other processes that do the same."""

    _running: set[asyncio.Task[float | None]]
    _changed: asyncio.Event

    async def _work(self) -> None:
        self._running, self._changed = set(), asyncio.Event()
        tasks = [
            self._start_supervised("dispatching events", partial(self._follow_events, self._notify)),
            self._start_supervised("looking for dead workers", self._requeue_orphans),
        ]
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
        """Return the next job, or None and how long to wait: without a limit if no more jobs may run at once."""
        options = self._options
        if len(self._running) >= options.concurrency:
            return None, None
        count, due = await self._store.jobs.backlog(at=time.time())
        job = await self._runner.claim() if count else None  # count first, because claiming writes to the store
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
            log.error("Could not store the outcome of %s", task.get_name(), exc_info=error)

    async def _requeue_orphans(self) -> None:
        while True:
            if await requeue_orphaned_jobs(self._store, self._clock):
                self._changed.set()
            await asyncio.sleep(self._options.poll)

    async def _finish_running(self) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=self._options.grace)
        await cancel_and_wait(*self._running)


class QueueWorker(Worker):
    """Runs jobs from a queue in PostgreSQL, alongside any number of workers on any number of machines."""

    _retry_pause = RETRY_SECONDS

    async def _work(self) -> None:
        while not self._stop_event.is_set():
            started = time.monotonic()
            try:
                await self._serve()
            except StoreClosedError:
                return
            except Exception:  # a worker survives errors and outages, and logs them
                log.exception("The queue of %s was interrupted; trying again", self._store.url)
            if time.monotonic() - started > MAX_RETRY_PAUSE:
                self._retry_pause = RETRY_SECONDS
            if not self._stop_event.is_set():
                await wait_for_first(self._stop_event, timeout_seconds=self._retry_pause)
                self._retry_pause = min(self._retry_pause * 2, MAX_RETRY_PAUSE)

    async def _serve(self) -> None:
        """Work until stopped, or until something fails."""
        # Imported here, because procrastinate is large and many processes have no jobs.
        from tellback.jobs.postgres import QueueService

        store: Any = self._store
        service = QueueService(store.queue_settings(), store, self._runner, self._options, self._clock)
        async with service.open():
            side_tasks = [
                self._start_supervised("dispatching events", partial(self._follow_events, service.deliver)),
                self._start_supervised("delivering jobs", partial(self._deliver_missing, service)),
            ]
            service_task = asyncio.create_task(service.run(), name="tellback queue")
            stop_task = asyncio.create_task(self._stop_event.wait(), name="until the worker stops")
            try:
                await asyncio.wait({service_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_and_wait(*side_tasks, stop_task)
                service.stop()
                # Do not wait for an unavailable server: deliveries come back when their leases end.
                await asyncio.wait({service_task}, timeout=self._options.grace + STOP_TIMEOUT)
                if not service_task.done():
                    log.warning("The queue of %s did not stop in time", self._store.url)
                    await cancel_and_wait(service_task)
                else:
                    await service_task

    async def _deliver_missing(self, service: QueueService) -> None:
        """Look periodically for jobs without a delivery: the process that created them may have died too early."""
        while True:
            await asyncio.sleep(self._options.poll)
            await service.deliver()


def open_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    schedules: Sequence[Schedule] = (),
    options: WorkerOptions = DEFAULT_OPTIONS,
    clock: Callable[[], datetime] = utc_now,
) -> Worker:
    """Return the worker for a store, not yet started: a queue worker on PostgreSQL, otherwise a polling one.

    >>> from tellback.stores import open_store
    >>> type(open_worker(open_store(":memory:"), {})).__name__
    'EmbeddedWorker'
    """
    if hasattr(store, "queue_settings"):
        if sys.platform == "win32":
            log.info("psycopg does not support the event loop of Windows: this worker polls for jobs")
        elif not all(map(importlib.util.find_spec, ("procrastinate", "psycopg"))):
            log.warning("procrastinate is not installed (pip install 'tellback[postgres]'): this worker polls for jobs")
        else:
            return QueueWorker(store, handlers, schedules=schedules, options=options, clock=clock)
    return EmbeddedWorker(store, handlers, schedules=schedules, options=options, clock=clock)
