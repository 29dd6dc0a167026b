"""`JobRunner`: run one job, keep its lease while it runs, and record the outcome."""

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
"""Does a job. It gives what came of it, or None if it has ended the job itself."""

TRANSIENT_ERRORS = (StoreUnavailableError, StoreBusyError, StoreFullError)
"""What a store says when the same call may work later."""

PERMANENT_ERRORS = (ExtractionError, InvalidArgumentError, NotFoundError)
"""What is no better at the next attempt. A mistake in the setup is: another worker may be set up better."""

LOGGABLE_ERRORS = (StoreError, ConfigurationError)
"""What says nothing of what was said."""

MAX_ERROR_LENGTH = 2_000
RETRY_SECONDS = 1.0
REQUEUE_TIMEOUT = 5.0
"""How long a stopping worker waits for the store to take its job back; it comes back by itself when the lease ends."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How many jobs a worker runs at once, and how long it waits for what; times are in seconds.

    A job is leased for `lease`, which is prolonged every `heartbeat` while it runs; the job of a worker that died is
    another's when the lease is over, at the latest. A job that takes longer than `timeout` fails. A failed job is
    tried again after `first_delay`, then three times as long each time, at most `longest_delay`, until it was begun
    `attempts` times. `poll` is how often to look for what nobody has announced, `grace` how long jobs may go on when
    the worker stops, and `window_length` how many characters of a conversation make one job.

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
                raise ConfigurationError(f"{name} is more than 0, not {getattr(self, name)!r}.")
        if self.heartbeat >= self.lease:
            raise ConfigurationError(
                f"A lease of {self.lease:g} seconds is over before the heartbeat at {self.heartbeat:g}: shorten that."
            )

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` has failed, up to a quarter more or less than the rule.

        >>> 1.5 <= WorkerOptions().backoff(1) <= 2.5
        True
        """
        delay = min(self.first_delay * 3.0 ** min(attempt - 1, 30), self.longest_delay)
        return min(delay * random.uniform(0.75, 1.25), self.longest_delay)


DEFAULT_OPTIONS = WorkerOptions()


class PostponeJob(Exception):
    """Raised by a handler that cannot do its job yet: it is run again after so many seconds, and this is not counted.

    >>> PostponeJob(30).seconds
    30
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"not before {seconds:g} seconds from now")


class JobRunner:
    """Claims jobs and runs them, each by the handler of its kind."""

    def __init__(
        self, store: Store, handlers: Mapping[str, Handler], options: WorkerOptions, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._options = options
        self._clock = clock

    async def claim(self, id: str | None = None) -> Job | None:
        """The next job that is due, or that of an id; it is ours from now on."""
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
        """Run a job that was claimed; gives the moment to run it again, or None if it is over or somebody else's.

        Cancelled, it puts the job back in the queue.
        """
        log.info("job %s begins, attempt %d", job.id, job.attempts)
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
            raise TimeoutError(f"It took longer than {seconds:g} seconds; see WorkerOptions(timeout=...).") from error

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
                span.record_outcome("put_back")
                await self._requeue(job)
                raise
            if lease_task.done():
                span.record_outcome("lost")
                log.warning("job %s was lost while it ran: its lease was over", job.id)
                return None
            return await self._record_failure(job, error, span)
        except PostponeJob as error:
            span.record_outcome("postponed")
            return await self._postpone(job, error.seconds)
        except JobLostError:
            span.record_outcome("lost")
            log.debug("job %s is run by somebody else now", job.id)
            return None
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is told in the job's row
            return await self._record_failure(job, error, span)
        return await self._finish(job, end, span)

    async def _finish(self, job: Job, end: JobEnd | None, span: telemetry.JobSpan) -> float | None:
        if end is not None:
            stored = await self._write_with_retry(job, lambda: self._store.jobs.finish(end, now=self._clock()))
        else:
            stored = await self._write_with_retry(job, lambda: self._store.jobs.get(None, job.id))
        if stored is not None and stored.status is JobStatus.RUNNING and stored.runs == job.runs:
            error = RuntimeError("the handler gave nothing and did not end its job")
            return await self._record_failure(job, error, span)
        span.record_outcome(str(stored.status) if stored is not None and stored.status.is_finished else "lost")
        if stored is not None and stored.status is JobStatus.DONE:
            counts = {name: value for name, value in stored.result.items() if isinstance(value, int)}
            log.info("job %s is done: %s", job.id, counts)
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
            log.debug("job %s failed, and is gone", job.id)
            return None
        level = logging.ERROR if is_final else logging.WARNING
        next_step = "for good" if retry_at is None else f"again in {retry_at - time.time():.1f} s"
        # What a handler raises may quote what the user said, which stays in the job's row: logs go elsewhere.
        detail, exc_info = (text, error) if isinstance(error, LOGGABLE_ERRORS) else (type(error).__name__, None)
        log.log(level, "job %s failed, attempt %d, %s: %s", job.id, job.attempts, next_step, detail, exc_info=exc_info)
        log.debug("why job %s failed", job.id, exc_info=error)
        return retry_at

    async def _postpone(self, job: Job, seconds: float) -> float | None:
        until = time.time() + max(0.0, seconds)
        end = JobEnd(job.id, job.runs)
        stored = await self._write_with_retry(
            job, lambda: self._store.jobs.postpone(end, until=until, now=self._clock())
        )
        return None if stored is None else until

    async def _requeue(self, job: Job) -> None:
        """For whoever comes next; not to be cut short by a second cancellation, as long as it does not take long."""
        log.info("job %s goes back in the queue", job.id)
        requeue_task = asyncio.create_task(self._postpone(job, 0), name=f"put back {job.id}")
        await asyncio.wait({requeue_task}, timeout=REQUEUE_TIMEOUT)
        if not requeue_task.done():
            requeue_task.cancel()
        [outcome] = await asyncio.gather(requeue_task, return_exceptions=True)
        if isinstance(outcome, BaseException):
            log.warning("job %s could not be put back; it is another's when its lease ends", job.id, exc_info=outcome)

    async def _write_with_retry(self, job: Job, write: Callable[[], Awaitable[Job | None]]) -> Job | None:
        """Tell the store, again while it cannot hear it, for as long as the job would be ours."""
        deadline = time.monotonic() + self._options.lease
        while True:
            try:
                return await write()
            except TRANSIENT_ERRORS:
                if time.monotonic() >= deadline:
                    raise
                log.warning("what came of job %s cannot be stored now; trying again", job.id, exc_info=True)
                await asyncio.sleep(RETRY_SECONDS)

    async def _keep_lease(self, job: Job, handler_task: asyncio.Task[JobEnd | None]) -> None:
        """Prolong the lease until cancelled; returns, and stops the work, once it is lost."""
        options = self._options
        until = time.time() + options.lease
        pause = options.heartbeat
        while True:
            await asyncio.sleep(pause)
            new_until = time.time() + options.lease
            try:
                is_held = await self._store.jobs.extend(job.id, job.runs, until=new_until)
            except StoreError:
                log.warning("the lease of job %s could not be prolonged; trying again", job.id, exc_info=True)
                is_held, pause = time.time() < until, min(RETRY_SECONDS, options.heartbeat)
            else:
                until, pause = new_until, options.heartbeat
            if not is_held:
                handler_task.cancel()
                return
