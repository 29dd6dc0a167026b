"""Jobs of a server, for admins."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Sequence

from tellback.client.handle import RemoteHandle
from tellback.client.ids import made_id
from tellback.client.pages import cursor_at, listed
from tellback.client.transport import Transport, path_of
from tellback.client.values import given
from tellback.types.jobs import Job, JobStatus
from tellback.wire.jobs import JobWire

FIRST_LOOK, LONGEST_LOOK = 0.05, 1.0


class RemoteJobs(RemoteHandle):
    """Jobs of everyone in the credential's tenant and app or, at another path, of one user."""

    def __init__(self, transport: Transport, user: str | None, *, at: tuple[str, str] = ("ai-admin", "jobs")) -> None:
        super().__init__(transport, user)
        self._at = at

    async def list(
        self,
        status: JobStatus | str | None = None,
        *,
        conversation_id: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
        user_id: str | None = None,
    ) -> builtins.list[Job]:
        """Jobs, the newest first: those of one user or, without `user_id`, of everyone."""
        query = given(status=status, conversation_id=conversation_id, user_id=user_id)
        path, cursor = path_of(*self._at), cursor_at(before)
        return await listed(self._transport, path, JobWire, limit, user=self._user, query=query, cursor=cursor)

    async def get(self, id: str) -> Job | None:
        """A job as it stands now, or None if there is none of that id."""
        found = await self._found(*self._at, id)
        return None if found is None else job_of(found)

    async def retry(self, id: str) -> Job:
        """Queue a job that failed, was cancelled or is done again, as if it were new."""
        return job_of(await self._post(path_of(*self._at, made_id("job", id), "retry")))

    async def cancel(self, id: str) -> Job:
        """End a job that has not ended yet. One that runs is stopped at its next heartbeat, and changes nothing."""
        return job_of(await self._post(path_of(*self._at, made_id("job", id), "cancel")))

    async def wait(self, ids: Sequence[str], timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Wait until these jobs have ended, done or not; gives False if they have not after so many seconds."""
        deadline, look, left = None if timeout is None else time.monotonic() + timeout, FIRST_LOOK, [*ids]
        while left:
            found = [await self.get(id) for id in left]
            left = [job.id for job in found if job is not None and not job.status.is_over]
            if left and deadline is not None and time.monotonic() >= deadline:
                return False
            if left:
                await asyncio.sleep(look)
                look = min(look * 1.5, LONGEST_LOOK)
        return True


def job_of(told: object) -> Job:
    """The job that a server tells of."""
    job: Job = JobWire.model_validate(told).value()
    return job
