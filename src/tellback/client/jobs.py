"""Jobs of a server, for admins."""

from __future__ import annotations

import asyncio
import builtins
import time
from collections.abc import Sequence

from tellback.client.handle import RemoteHandle
from tellback.client.ids import require_server_id
from tellback.client.pages import encode_cursor, list_all
from tellback.client.transport import Transport, build_path
from tellback.client.values import encode_arguments
from tellback.types.jobs import Job, JobStatus
from tellback.wire.jobs import JobWire

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0


class RemoteJobs(RemoteHandle):
    """Jobs of everyone in the credential's tenant and app or, at another path, of one user."""

    def __init__(self, transport: Transport, user: str | None, *, path: tuple[str, str] = ("ai-admin", "jobs")) -> None:
        super().__init__(transport, user)
        self._path = path

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
        query = encode_arguments(status=status, conversation_id=conversation_id, user_id=user_id)
        path, cursor = build_path(*self._path), encode_cursor(before)
        return await list_all(self._transport, path, JobWire, limit, user=self._user, query=query, cursor=cursor)

    async def get(self, id: str) -> Job | None:
        """A job as it stands now, or None if there is none of that id."""
        found = await self._get_by_id(*self._path, id)
        return None if found is None else decode_job(found)

    async def retry(self, id: str) -> Job:
        """Queue a job that failed, was cancelled or is done again, as if it were new."""
        return decode_job(await self._post(build_path(*self._path, require_server_id("job", id), "retry")))

    async def cancel(self, id: str) -> Job:
        """End a job that has not ended yet. One that runs is stopped at its next heartbeat, and changes nothing."""
        return decode_job(await self._post(build_path(*self._path, require_server_id("job", id), "cancel")))

    async def wait(self, ids: Sequence[str], timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Wait until these jobs have ended, done or not; gives False if they have not after so many seconds."""
        deadline, interval, pending = (
            None if timeout is None else time.monotonic() + timeout,
            FIRST_POLL_SECONDS,
            [*ids],
        )
        while pending:
            found = [await self.get(id) for id in pending]
            pending = [job.id for job in found if job is not None and not job.status.is_finished]
            if pending and deadline is not None and time.monotonic() >= deadline:
                return False
            if pending:
                await asyncio.sleep(interval)
                interval = min(interval * 1.5, MAX_POLL_SECONDS)
        return True


def decode_job(payload: object) -> Job:
    """The job that a server tells of."""
    job: Job = JobWire.model_validate(payload).value()
    return job
