"""`tb.jobs`: pending jobs, and the results of finished ones."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from tellback.concurrency import BackgroundTasks
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.jobs.worker import Worker
from tellback.portal import Handle
from tellback.stores import Store
from tellback.types.access import Scope
from tellback.types.ids import utc_now
from tellback.types.jobs import Job, JobStatus

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.01, 0.25
MAX_NAMED_JOBS = 5
"""How many remaining jobs a timeout error lists."""


class Jobs(Handle):
    """The jobs of all users, stored until they are done, and the background work of this process.

    `worker` runs jobs in this process; without one, other processes run them.

    >>> import asyncio
    >>> from tellback.stores import open_store
    >>> async def main():
    ...     store = open_store(":memory:")
    ...     await store.open()
    ...     jobs = Jobs(store)
    ...     await jobs.drain()
    ...     found = await jobs.list()
    ...     await store.close()
    ...     return found
    >>> asyncio.run(main())
    []
    """

    def __init__(self, store: Store, worker: Worker | None = None, *, clock: Callable[[], datetime] = utc_now) -> None:
        self._store = store
        self._worker = worker
        self._clock = clock
        self._background = BackgroundTasks()

    def start_worker(self) -> None:
        """Start this process's worker, if it has one. The store must be open."""
        if self._worker is not None:
            self._worker.start()

    def wake(self) -> None:
        """Notify the worker that there is work, or will be soon."""
        if self._worker is not None:
            self._worker.wake()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run a coroutine in the background of this process."""
        return self._background.start(work, name)

    async def list(
        self,
        status: JobStatus | str | None = None,
        *,
        conversation_id: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
        user_id: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> builtins.list[Job]:
        """List jobs, the newest first: of one user or, without `user_id`, of a tenant and app, or all.

        For the next page, pass the id of the last job as `before`.
        """
        scope = None if user_id is None else Scope(tenant_id or "default", app_id or "default", user_id)
        return await self._store.jobs.list_jobs(
            scope,
            status=_parse_status(status),
            conversation_id=conversation_id,
            limit=limit,
            before=before,
            tenant_id=tenant_id,
            app_id=app_id,
        )

    async def get(self, id: str) -> Job | None:
        """Return the current state of a job, or None if the id is unknown."""
        return await self._store.jobs.get(None, id)

    async def retry(self, id: str) -> Job:
        """Queue a failed, cancelled or finished job again, as a new one."""
        job = await self._store.jobs.retry(None, id, now=self._clock())
        self.wake()
        return job

    async def cancel(self, id: str) -> Job:
        """Cancel a job that has not ended yet. A running job stops at its next heartbeat and changes nothing."""
        return await self._store.jobs.cancel(None, id, now=self._clock())

    async def wait(self, ids: Sequence[str], timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Wait until these jobs have ended, successfully or not; return False if `timeout` seconds pass first."""
        if isinstance(ids, str):
            raise InvalidArgumentError(f"ids must be a list of job ids, got {ids!r:.80}.")
        unfinished = list(ids)

        async def have_ended() -> bool:
            jobs = [await self._store.jobs.get(None, id) for id in unfinished]
            unfinished[:] = [job.id for job in jobs if job is not None and not job.status.is_finished]
            return not unfinished

        return await self._poll(have_ended, _deadline_after(timeout))

    async def drain(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the error lists the remaining jobs
        """Wait until no work is left in any process: for tests and scripts.

        If this process was opened with `worker=False`, another process must run the jobs: pass a `timeout`.
        It does not wait for failed jobs that are waiting for their next attempt. After `timeout` seconds it raises
        `TimeoutError`, which lists the remaining jobs.
        """
        deadline = _deadline_after(timeout)
        if not await self._poll(lambda: self._is_idle(deadline), deadline):
            hint = "" if self._worker is not None else " This process runs no jobs itself: is a worker running?"
            raise TimeoutError(f"After {timeout:g} seconds there {await self._describe_remaining()}.{hint}")

    async def close(self) -> None:
        """Put running jobs back in the queue, and finish the background work."""
        if self._worker is not None:
            await self._worker.close()
        await self._background.close()

    async def _poll(self, is_done: Callable[[], Awaitable[bool]], deadline: float | None) -> bool:
        """Let the worker run until `is_done` returns true or the deadline passes; return whether it is done."""
        pause = FIRST_POLL_SECONDS
        while not await is_done():
            self.wake()
            if deadline is not None and time.monotonic() >= deadline:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, MAX_POLL_SECONDS)
        return True

    async def _is_idle(self, deadline: float | None) -> bool:
        await self._background.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if self._background.names or await self._store.jobs.has_pending_events():
            return False
        count, _ = await self._store.jobs.backlog(at=time.time())
        return not count and not self._background.names

    async def _describe_remaining(self) -> str:
        """Describe the remaining work in words."""
        if names := self._background.names:
            return f"is still work in the background: {', '.join(names[:MAX_NAMED_JOBS])}"
        if await self._store.jobs.has_pending_events():
            return "are still events from which jobs may follow"
        count, _ = await self._store.jobs.backlog(at=time.time())
        jobs = [
            f"{job.id} ({job.status.value})"
            for status in (JobStatus.RUNNING, JobStatus.QUEUED)
            for job in await self._store.jobs.list_jobs(None, status=status, limit=MAX_NAMED_JOBS)
        ]
        return f"are still {count} jobs due or running: {', '.join(jobs[:MAX_NAMED_JOBS])}"


def _deadline_after(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


class AppJobs:
    """The jobs of one tenant and app. Jobs of others are unknown here."""

    def __init__(self, jobs: Jobs, tenant_id: str, app_id: str) -> None:
        self._jobs = jobs
        self._tenant_id = tenant_id
        self._app_id = app_id

    async def list(
        self,
        status: JobStatus | str | None = None,
        *,
        conversation_id: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
        user_id: str | None = None,
    ) -> builtins.list[Job]:
        """List the jobs of all users of the app, or of one, the newest first."""
        return await self._jobs.list(
            status,
            conversation_id=conversation_id,
            limit=limit,
            before=before,
            user_id=user_id,
            tenant_id=self._tenant_id,
            app_id=self._app_id,
        )

    async def get(self, id: str) -> Job | None:
        """Return the current state of a job, or None if the id is unknown."""
        job = await self._jobs.get(id)
        return job if job is not None and (job.tenant_id, job.app_id) == (self._tenant_id, self._app_id) else None

    async def retry(self, id: str) -> Job:
        """Queue a failed, cancelled or finished job again, as a new one."""
        return await self._jobs.retry(await self._require(id))

    async def cancel(self, id: str) -> Job:
        """Cancel a job that has not ended yet. A running job stops at its next heartbeat and changes nothing."""
        return await self._jobs.cancel(await self._require(id))

    async def _require(self, id: str) -> str:
        if await self.get(id) is None:
            raise NotFoundError("job", id)
        return id


def _parse_status(status: Any) -> JobStatus | None:
    if status is None:
        return None
    try:
        return JobStatus(status)
    except ValueError:
        known = ", ".join(each.value for each in JobStatus)
        raise InvalidArgumentError(f"status must be one of {known}, got {status!r:.80}.") from None
