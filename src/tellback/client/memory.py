"""`user.memory` and `user.working_context` on a server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime

from tellback.client.transport import RemoteHandle
from tellback.errors import RemoteUnavailableError, StoreError
from tellback.types.jobs import Job
from tellback.types.memory import WorkingContext
from tellback.wire.operations import OPERATIONS, MemoryOperations
from tellback.wire.values import JobWire

MAX_WAIT_SECONDS = 20.0
"""The longest time, in seconds, that one request waits."""
RECONNECT_SECONDS = 1.0


class RemoteWorkingContextBuilder(RemoteHandle):
    """Builds the working context of a user's conversations on a server."""

    async def build(
        self,
        conversation_id: str | None,
        memory_space_id: str | None = None,
        recall_query: str | None = None,
        recent_turns: int | None = 10,
        recall_limit: int | None = 8,
        token_budget: int | None = 8_000,
        include_rolling_summary: bool | None = True,
        always_on_category_names: Sequence[str] | None = (),
        template_id: str | None = "default",
        *,
        now: datetime | str | None = None,
        min_score: float | None = None,
    ) -> WorkingContext:
        """Build the context for a model's answer in this conversation, or (with None) in a new one."""
        arguments = {name: value for name, value in locals().items() if name != "self"}
        context: WorkingContext = await self._call(OPERATIONS["build_working_context"], (), arguments)
        return context


class RemoteMemory(RemoteHandle, MemoryOperations):
    """The memory of one user on a server, with the methods of `user.memory`."""

    async def follow_job(self, id: str) -> AsyncGenerator[Job, None]:
        """Yield a job now and after each change, until it is finished. Waits while the server is unavailable."""
        path, job = self._path("follow_job", id=id), None
        while job is None or not job.status.is_finished:
            try:
                async with aclosing(self._transport.stream_events("GET", path, user=self._user)) as events:
                    async for item in events:
                        found: Job = JobWire.decode(json.loads(item.data))
                        if found != job:
                            job = found
                            yield job
            except (RemoteUnavailableError, StoreError):
                if job is None:
                    raise
            if job is None or not job.status.is_finished:
                await asyncio.sleep(RECONNECT_SECONDS)

    async def wait_for_extraction(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - returns False
        """Wait until all closed conversations of this user are extracted; return False on a timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = (
                MAX_WAIT_SECONDS if deadline is None else min(MAX_WAIT_SECONDS, max(0.0, deadline - time.monotonic()))
            )
            is_done = await super().wait_for_extraction(remaining)
            if is_done or (deadline is not None and time.monotonic() >= deadline):
                return is_done
