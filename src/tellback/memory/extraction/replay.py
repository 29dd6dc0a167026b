"""Replay: extract many conversations again, and report progress."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from tellback.errors import NotFoundError
from tellback.memory.extraction.service import ExtractionService
from tellback.runtime import Runtime
from tellback.types.access import Scope
from tellback.types.jobs import Job, JobStatus

BATCH_SIZE = 100
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay has come: conversations looked at, and jobs that are done, failed, or there at all so far."""

    conversations: int
    jobs: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a replay did. `failed` are the jobs that could not be done, each with its `error`; `skipped` counts
    conversations that no binding matches."""

    conversations: int
    jobs: int
    done: int
    failed: tuple[Job, ...]
    skipped: int


class Replay:
    """One replay: plans all jobs, then waits for them."""

    def __init__(
        self,
        runtime: Runtime,
        extraction: ExtractionService,
        version: str | None,
        on_progress: Callable[[ReplayProgress], Any] | None,
    ) -> None:
        self._runtime = runtime
        self._extraction = extraction
        self._version = version
        self._on_progress = on_progress
        self._pending: dict[str, Job] = {}
        self._created: set[str] = set()
        self._planning: asyncio.Future[None] | None = None
        self._failed: list[Job] = []
        self._job_count = self._done = self._conversations = self._skipped = 0

    async def run(
        self, scope: Scope | None, namespace: str | None, tenant_id: str | None = None, app_id: str | None = None
    ) -> ReplayReport:
        """Replay one user's conversations or, with None, everyone's."""
        await self._extraction.dispatch_pending()  # what was to be extracted anyway is not ours to take back
        try:
            async for owner, id in self._find_conversations(scope, namespace, tenant_id, app_id):
                await self._plan_conversation(owner, id)
            while self._pending:
                await self._poll()
                if self._pending:
                    await asyncio.sleep(POLL_SECONDS)
        except asyncio.CancelledError:
            await asyncio.shield(self._cancel())
            raise
        return ReplayReport(self._conversations, self._job_count, self._done, tuple(self._failed), self._skipped)

    async def _find_conversations(
        self, scope: Scope | None, namespace: str | None, tenant_id: str | None, app_id: str | None
    ) -> AsyncIterator[tuple[Scope, str]]:
        if scope is not None:
            tenant_id, app_id = scope.tenant_id, scope.app_id
        user_id = None if scope is None else scope.user_id
        after = ""
        while found := await self._runtime.store.conversations.list_across_users(
            tenant_id=tenant_id, app_id=app_id, user_id=user_id, namespace=namespace, after=after, limit=BATCH_SIZE
        ):
            for each in found:
                yield each
            after = found[-1][1]

    async def _plan_conversation(self, scope: Scope, id: str) -> None:
        self._conversations += 1
        # Not to be cut short: what was planned must be known, to be taken back.
        self._planning = asyncio.ensure_future(self._plan_jobs(scope, id))
        try:
            await asyncio.shield(self._planning)
        except NotFoundError:  # no binding, or erased meanwhile
            self._skipped += 1
        await self._report_progress()

    async def _plan_jobs(self, scope: Scope, id: str) -> None:
        before = await self._runtime.store.jobs.list_jobs(scope, conversation_id=id)
        pending_before = {job.id for job in before if not job.status.is_finished}
        jobs = await self._runtime.store.jobs.plan(
            scope,
            id,
            version=self._version,
            space_id=None,
            window_length=self._extraction.window_length,
            now=self._runtime.clock(),
        )
        self._pending.update({job.id: job for job in jobs})
        self._created.update(job.id for job in jobs if job.id not in pending_before)
        self._job_count += len(jobs)
        self._extraction.wake()

    async def _poll(self) -> None:
        """Count what is over. Jobs of a space end in order, so it is enough to look at the first ones."""
        before = len(self._pending)
        for job in list(self._pending.values())[:BATCH_SIZE]:
            found = await self._runtime.store.jobs.get(job.scope, job.id)
            if found is not None and not found.status.is_finished:
                continue
            del self._pending[job.id]
            if found is not None and found.status is JobStatus.DONE:
                self._done += 1
            elif found is not None:
                self._failed.append(found)
        if len(self._pending) != before:
            await self._report_progress()

    async def _cancel(self) -> None:
        """Take back what this replay asked for; what waited before goes on waiting."""
        if self._planning is not None:
            await asyncio.gather(self._planning, return_exceptions=True)
        for job in [job for job in self._pending.values() if job.id in self._created]:
            found = await self._runtime.store.jobs.get(job.scope, job.id)
            if found is not None and found.status is JobStatus.QUEUED:
                await self._runtime.store.jobs.cancel(job.scope, job.id, now=self._runtime.clock())

    async def _report_progress(self) -> None:
        if self._on_progress is not None:
            result = self._on_progress(
                ReplayProgress(self._conversations, self._job_count, self._done, len(self._failed))
            )
            if inspect.isawaitable(result):
                await result
