"""Running one job: its lease is kept while it runs, and what came of it is recorded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
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
from tellback.jobs.options import WorkerOptions
from tellback.stores import JobEnd, Store
from tellback.types.jobs import Job, JobStatus
from tellback.types.jsontext import storable

log = logging.getLogger("tellback.jobs")

Handler = Callable[[Job], Awaitable[JobEnd | None]]
"""Does a job. It gives what came of it, or None if it has ended the job itself."""

PASSING = (StoreUnavailableError, StoreBusyError, StoreFullError)
"""What a store says when the same call may work later."""

PERMANENT = (ExtractionError, InvalidArgumentError, NotFoundError)
"""What is no better at the next attempt. A mistake in the setup is: another worker may be set up better."""

TELLING = (StoreError, ConfigurationError)
"""What says nothing of what was said."""

ERROR_LENGTH = 2_000
RETRY_SECONDS = 1.0
PUT_BACK_SECONDS = 5.0
"""How long a stopping worker waits for the store to take its job back; it comes back by itself when the lease ends."""


class Postponed(Exception):
    """Raised by a handler that cannot do its job yet: it is run again after so many seconds, and this is not counted.

    >>> Postponed(30).seconds
    30
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"not before {seconds:g} seconds from now")


class Runner:
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
            owner=self._store.owner,
            at=at,
            until=at + options.lease,
            most=options.attempts,
            now=self._clock(),
            id=id,
        )

    async def run(self, job: Job) -> float | None:
        """Run a job that was claimed; gives the moment to run it again, or None if it is over or somebody else's.

        Cancelled, it puts the job back in the queue.
        """
        log.info("job %s begins, attempt %d", job.id, job.attempts)
        with telemetry.job_span(job) as span:
            return await self._observed(job, span)

    async def _observed(self, job: Job, span: telemetry.JobSpan) -> float | None:
        work = asyncio.create_task(self._handle(job), name=f"job {job.id}")
        holding = asyncio.create_task(self._hold(job, work), name=f"lease of {job.id}")
        try:
            return await self._outcome(job, work, holding, span)
        finally:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)

    async def _handle(self, job: Job) -> JobEnd | None:
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

    async def _outcome(
        self, job: Job, work: asyncio.Task[JobEnd | None], holding: asyncio.Task[None], span: telemetry.JobSpan
    ) -> float | None:
        try:
            end = await work
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                span.came_to("put_back")
                await self._put_back(job)
                raise
            if holding.done():
                span.came_to("lost")
                log.warning("job %s was lost while it ran: its lease was over", job.id)
                return None
            return await self._failed(job, error, span)
        except Postponed as error:
            span.came_to("postponed")
            return await self._postponed(job, error.seconds)
        except JobLostError:
            span.came_to("lost")
            log.debug("job %s is run by somebody else now", job.id)
            return None
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is told in the job's row
            return await self._failed(job, error, span)
        return await self._done(job, end, span)

    async def _done(self, job: Job, end: JobEnd | None, span: telemetry.JobSpan) -> float | None:
        if end is not None:
            found = await self._recorded(job, lambda: self._store.jobs.finish(end, now=self._clock()))
        else:
            found = await self._recorded(job, lambda: self._store.jobs.get(None, job.id))
        if found is not None and found.status is JobStatus.RUNNING and found.runs == job.runs:
            error = RuntimeError("the handler gave nothing and did not end its job")
            return await self._failed(job, error, span)
        span.came_to(str(found.status) if found is not None and found.status.is_over else "lost")
        if found is not None and found.status is JobStatus.DONE:
            counts = {name: value for name, value in found.result.items() if isinstance(value, int)}
            log.info("job %s is done: %s", job.id, counts)
        return None

    async def _failed(self, job: Job, error: BaseException, span: telemetry.JobSpan) -> float | None:
        options = self._options
        is_final = isinstance(error, PERMANENT) or job.attempts >= options.attempts
        retry_at = None if is_final else time.time() + options.backoff(job.attempts)
        span.came_to("failed" if is_final else "retry", error)
        text = storable(f"{type(error).__name__}: {error}")[:ERROR_LENGTH]
        raw = storable(error.raw) if isinstance(error, ExtractionError) else None
        end = JobEnd(job.id, job.runs)
        ended = await self._recorded(
            job, lambda: self._store.jobs.fail(end, text, raw=raw, retry_at=retry_at, now=self._clock())
        )
        if ended is None:
            log.debug("job %s failed, and is gone", job.id)
            return None
        level = logging.ERROR if is_final else logging.WARNING
        then = "for good" if retry_at is None else f"again in {retry_at - time.time():.1f} s"
        # What a handler raises may quote what the user said, which stays in the job's row: logs go elsewhere.
        told, trace = (text, error) if isinstance(error, TELLING) else (type(error).__name__, None)
        log.log(level, "job %s failed, attempt %d, %s: %s", job.id, job.attempts, then, told, exc_info=trace)
        log.debug("why job %s failed", job.id, exc_info=error)
        return retry_at

    async def _postponed(self, job: Job, seconds: float) -> float | None:
        until = time.time() + max(0.0, seconds)
        end = JobEnd(job.id, job.runs)
        ended = await self._recorded(job, lambda: self._store.jobs.postpone(end, until=until, now=self._clock()))
        return None if ended is None else until

    async def _put_back(self, job: Job) -> None:
        """For whoever comes next; not to be cut short by a second cancellation, as long as it does not take long."""
        log.info("job %s goes back in the queue", job.id)
        returning = asyncio.create_task(self._postponed(job, 0), name=f"put back {job.id}")
        await asyncio.wait({returning}, timeout=PUT_BACK_SECONDS)
        if not returning.done():
            returning.cancel()
        [outcome] = await asyncio.gather(returning, return_exceptions=True)
        if isinstance(outcome, BaseException):
            log.warning("job %s could not be put back; it is another's when its lease ends", job.id, exc_info=outcome)

    async def _recorded(self, job: Job, write: Callable[[], Awaitable[Job | None]]) -> Job | None:
        """Tell the store, again while it cannot hear it, for as long as the job would be ours."""
        deadline = time.monotonic() + self._options.lease
        while True:
            try:
                return await write()
            except PASSING:
                if time.monotonic() >= deadline:
                    raise
                log.warning("what came of job %s cannot be stored now; trying again", job.id, exc_info=True)
                await asyncio.sleep(RETRY_SECONDS)

    async def _hold(self, job: Job, work: asyncio.Task[JobEnd | None]) -> None:
        """Prolong the lease until cancelled; returns, and stops the work, once it is lost."""
        options = self._options
        until = time.time() + options.lease
        pause = options.heartbeat
        while True:
            await asyncio.sleep(pause)
            wish = time.time() + options.lease
            try:
                held = await self._store.jobs.extend(job.id, job.runs, until=wish)
            except StoreError:
                log.warning("the lease of job %s could not be prolonged; trying again", job.id, exc_info=True)
                held, pause = time.time() < until, min(RETRY_SECONDS, options.heartbeat)
            else:
                until, pause = wish, options.heartbeat
            if not held:
                work.cancel()
                return
