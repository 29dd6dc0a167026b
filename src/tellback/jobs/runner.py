"""`JobRunner`: run one job, renew its lease while it runs, and record the outcome."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tellback import telemetry
from tellback.errors import (
    ConfigurationError,
    ExtractionError,
    InvalidArgumentError,
    JobLostError,
    NotFoundError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from tellback.stores import JobEnd, Store
from tellback.types.jobs import Job, JobStatus
from tellback.types.jsontext import make_storable

log = logging.getLogger("tellback.jobs")

Handler = Callable[[Job], Awaitable[JobEnd | None]]
"""Runs a job. It returns the outcome, or None if it has ended the job itself."""

TRANSIENT_ERRORS = (StoreUnavailableError, StoreBusyError, StoreFullError)
"""Store errors after which the same call may succeed later."""

PERMANENT_ERRORS = (ExtractionError, InvalidArgumentError, NotFoundError)
"""Errors that another attempt cannot fix. A configuration error is not one, because another worker may have another
configuration."""

LOGGABLE_ERRORS = (StoreError, ConfigurationError)
"""Errors that are safe to log, because they contain no message text."""

MAX_ERROR_LENGTH = 2_000
RETRY_SECONDS = 1.0
REQUEUE_TIMEOUT = 5.0
"""How long a stopping worker tries to put a job back in the queue. Otherwise the job waits until its lease ends."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How many jobs a worker runs at the same time, and its timeouts in seconds.

    A job is leased for `lease`, and the lease is renewed every `heartbeat`. If a worker dies, another one may claim its
    job when the lease ends, or earlier. A job that takes longer than `timeout` fails. A failed job is tried again after
    `first_delay`, then after three times as long each time, up to `longest_delay`, until it has started `attempts`
    times. `poll` is the interval of looking for jobs without a notification. When the worker stops, jobs may
    continue for `grace`. One job gets at most `window_length` characters of a conversation.

    >>> WorkerOptions(concurrency=4).concurrency
    4
    """

    concurrency: int = 2
    lease: float = 60.0
    heartbeat: float = 20.0
    timeout: float = 900.0
    attempts: int = 8
    first_delay: float = 2.0
    longest_delay: float = 900.0
    poll: float = 5.0
    grace: float = 10.0
    window_length: int = 24_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be greater than 0, got {getattr(self, name)!r}.")
        if self.heartbeat >= self.lease:
            raise ConfigurationError(
                f"heartbeat ({self.heartbeat:g} seconds) must be shorter than lease ({self.lease:g} seconds)."
            )

    def backoff(self, attempt: int) -> float:
        """Return the seconds to wait after failed attempt number `attempt`, with up to 25% random variation.

        >>> 1.5 <= WorkerOptions().backoff(1) <= 2.5
        True
        """
        delay = min(self.first_delay * 3.0 ** min(attempt - 1, 30), self.longest_delay)
        return min(delay * random.uniform(0.75, 1.25), self.longest_delay)


DEFAULT_OPTIONS = WorkerOptions()


class PostponeJob(Exception):
    """Raised by a handler that cannot run its job yet. The job runs again later, and this attempt does not count.

    >>> PostponeJob(30).seconds
    30
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"postponed by {seconds:g} seconds")


class JobRunner:
    """Claims jobs and runs each with the handler of its kind."""

    def __init__(
        self, store: Store, handlers: Mapping[str, Handler], options: WorkerOptions, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._options = options
        self._clock = clock

    async def claim(self, id: str | None = None) -> Job | None:
        """Claim the next due job, or the job with that id."""
        options, at = self._options, time.time()
        return await self._store.jobs.claim(
            instance_id=self._store.instance_id,
            at=at,
            until=at + options.lease,
            max_attempts=options.attempts,
            now=self._clock(),
            id=id,
        )

    async def run(self, job: Job) -> float | None:
        """Run a claimed job. Return when to run it again, or None if it has ended or another worker has it.

        If cancelled, it puts the job back in the queue.
        """
        log.info("Job %s started, attempt %d", job.id, job.attempts)
        with telemetry.job_span(job) as span:
            handler_task = asyncio.create_task(self._call_handler(job), name=f"job {job.id}")
            lease_task = asyncio.create_task(self._keep_lease(job, handler_task), name=f"lease of {job.id}")
            try:
                return await self._await_outcome(job, handler_task, lease_task, span)
            finally:
                lease_task.cancel()
                await asyncio.gather(lease_task, return_exceptions=True)

    async def _call_handler(self, job: Job) -> JobEnd | None:
        handler = self._handlers.get(job.kind)
        if handler is None:
            raise ConfigurationError(f"This worker has no handler for jobs of kind {job.kind!r}.")
        try:
            async with asyncio.timeout(self._options.timeout) as limit:
                return await handler(job)
        except TimeoutError as error:
            if not limit.expired():
                raise
            seconds = self._options.timeout
            raise TimeoutError(
                f"The job took longer than {seconds:g} seconds; see WorkerOptions(timeout=...)."
            ) from error

    async def _await_outcome(
        self,
        job: Job,
        handler_task: asyncio.Task[JobEnd | None],
        lease_task: asyncio.Task[None],
        span: telemetry.JobSpan,
    ) -> float | None:
        try:
            end = await handler_task
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                span.record_outcome("requeued")
                await self._requeue(job)
                raise
            if lease_task.done():
                span.record_outcome("lost")
                log.warning("Job %s was stopped: it was cancelled or erased, or its lease had ended", job.id)
                return None
            return await self._record_failure(job, error, span)
        except PostponeJob as error:
            span.record_outcome("postponed")
            return await self._postpone(job, error.seconds)
        except JobLostError:
            span.record_outcome("lost")
            log.debug("Job %s now belongs to another worker, or was erased", job.id)
            return None
        except Exception as error:  # noqa: BLE001 - any error of a handler is stored in the job
            return await self._record_failure(job, error, span)
        return await self._finish(job, end, span)

    async def _finish(self, job: Job, end: JobEnd | None, span: telemetry.JobSpan) -> float | None:
        if end is not None:
            stored = await self._write_with_retry(job, lambda: self._store.jobs.finish(end, now=self._clock()))
        else:
            stored = await self._write_with_retry(job, lambda: self._store.jobs.get(None, job.id))
        if stored is not None and stored.status is JobStatus.RUNNING and stored.runs == job.runs:
            error = RuntimeError("the handler returned None and did not end its job")
            return await self._record_failure(job, error, span)
        span.record_outcome(str(stored.status) if stored is not None and stored.status.is_finished else "lost")
        if stored is not None and stored.status is JobStatus.DONE:
            counts = {name: value for name, value in stored.result.items() if isinstance(value, int)}
            log.info("Job %s finished: %s", job.id, counts)
        return None

    async def _record_failure(self, job: Job, error: BaseException, span: telemetry.JobSpan) -> float | None:
        options = self._options
        is_final = isinstance(error, PERMANENT_ERRORS) or job.attempts >= options.attempts
        retry_at = None if is_final else time.time() + options.backoff(job.attempts)
        span.record_outcome("failed" if is_final else "retry", error)
        text = make_storable(f"{type(error).__name__}: {error}")[:MAX_ERROR_LENGTH]
        raw = make_storable(error.raw) if isinstance(error, ExtractionError) else None
        end = JobEnd(job.id, job.runs)
        stored = await self._write_with_retry(
            job, lambda: self._store.jobs.fail(end, text, raw_output=raw, retry_at=retry_at, now=self._clock())
        )
        if stored is None:
            log.debug("Job %s failed, and was deleted in the meantime", job.id)
            return None
        level = logging.ERROR if is_final else logging.WARNING
        next_step = "not retried" if retry_at is None else f"retried in {retry_at - time.time():.1f} s"
        # An error of a handler may quote the user's messages, so its text goes only to the job's row, not to the log.
        detail, exc_info = (text, error) if isinstance(error, LOGGABLE_ERRORS) else (type(error).__name__, None)
        log.log(level, "Job %s failed, attempt %d, %s: %s", job.id, job.attempts, next_step, detail, exc_info=exc_info)
        log.debug("Job %s failed with this error", job.id, exc_info=error)
        return retry_at

    async def _postpone(self, job: Job, seconds: float) -> float | None:
        until = time.time() + max(0.0, seconds)
        end = JobEnd(job.id, job.runs)
        stored = await self._write_with_retry(
            job, lambda: self._store.jobs.postpone(end, until=until, now=self._clock())
        )
        return None if stored is None else until

    async def _requeue(self, job: Job) -> None:
        """Put a job back in the queue, in a task that a second cancellation does not stop, within `REQUEUE_TIMEOUT`."""
        log.info("Putting job %s back in the queue", job.id)
        requeue_task = asyncio.create_task(self._postpone(job, 0), name=f"put back {job.id}")
        await asyncio.wait({requeue_task}, timeout=REQUEUE_TIMEOUT)
        if not requeue_task.done():
            requeue_task.cancel()
        [outcome] = await asyncio.gather(requeue_task, return_exceptions=True)
        if isinstance(outcome, BaseException):
            log.warning("Could not put job %s back; it waits until its lease ends", job.id, exc_info=outcome)

    async def _write_with_retry(self, job: Job, write: Callable[[], Awaitable[Job | None]]) -> Job | None:
        """Write to the store, and retry transient errors for as long as the job's lease lasts."""
        deadline = time.monotonic() + self._options.lease
        while True:
            try:
                return await write()
            except TRANSIENT_ERRORS:
                if time.monotonic() >= deadline:
                    raise
                log.warning("Could not store the outcome of job %s; trying again", job.id, exc_info=True)
                await asyncio.sleep(RETRY_SECONDS)

    async def _keep_lease(self, job: Job, handler_task: asyncio.Task[JobEnd | None]) -> None:
        """Renew the lease until cancelled. If it is lost, stop the handler and return."""
        options = self._options
        until = time.time() + options.lease
        pause = options.heartbeat
        while True:
            await asyncio.sleep(pause)
            new_until = time.time() + options.lease
            try:
                is_held = await self._store.jobs.extend(job.id, job.runs, until=new_until)
            except StoreError:
                log.warning("Could not renew the lease of job %s; trying again", job.id, exc_info=True)
                is_held, pause = time.time() < until, min(RETRY_SECONDS, options.heartbeat)
            else:
                until, pause = new_until, options.heartbeat
            if not is_held:
                handler_task.cancel()
                return
