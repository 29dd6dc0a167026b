"""Bindings and extraction, as part of `user.memory`: which conversations become memories, and making them so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from tellback.conversations import checks as common
from tellback.conversations.runtime import Runtime
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory import binding_checks, checks
from tellback.memory.asking import MemoryRecall
from tellback.memory.binding_checks import PolicyLike, ScopeLike
from tellback.memory.extraction.replay import Replay, ReplayProgress, ReplayReport
from tellback.memory.extraction.service import ExtractionService
from tellback.memory.recalling import RecallService
from tellback.types.bindings import Binding
from tellback.types.ids import new_id
from tellback.types.jobs import ExtractionRun, Job, JobStatus
from tellback.types.scope import Scope
from tellback.types.times import utc_now

DEFAULT_JOB_LIMIT = 100


class MemoryExtraction(MemoryRecall):
    """What turns conversations into memories."""

    def __init__(self, runtime: Runtime, scope: Scope, recall: RecallService, extraction: ExtractionService) -> None:
        super().__init__(runtime, scope, recall)
        self._extraction = extraction

    async def create_binding(
        self,
        conversation_scope: ScopeLike | Iterable[ScopeLike],
        memory_space_ids: Iterable[str],
        extraction_policy: PolicyLike | None = None,
        *,
        once: bool = False,
    ) -> Binding:
        """From now on, let conversations become memories.

        `conversation_scope` says which: `{"namespace": "chat", "user_id": "*"}`, where "*" is any, or a list of such.
        `memory_space_ids` are spaces of this user; conversations of others go to their own spaces of the same names,
        made when missing. By default a conversation is extracted when it closes. With `once`, a binding that this user
        made before of the same scopes and spaces is given back as it is: for programs that bind whenever they start.
        """
        scopes = binding_checks.validate_scopes(conversation_scope)
        policy = binding_checks.validate_policy(extraction_policy)
        self._extraction.check_version(policy.extraction_version)
        ids = checks.validate_ids("memory_space_ids", memory_space_ids)
        if not ids:
            raise InvalidArgumentError("memory_space_ids is empty: name at least one space.")
        names = []
        for id in ids:
            space = await self._runtime.store.memories.space(self._scope, common.validate_id("space", id))
            if space is None:
                raise NotFoundError("space", id)
            names.append(space.name)
        now = self._runtime.clock()
        binding = Binding(
            id=new_id("bind"),
            tenant_id=self._scope.tenant_id,
            app_id=self._scope.app_id,
            conversation_scope=scopes,
            memory_space_ids=ids,
            memory_space_names=tuple(names),
            extraction_policy=policy,
            created_at=now,
            updated_at=now,
            created_by=self._scope.user_id,
        )
        stored = await self._runtime.store.bindings.create(self._scope, binding, reuse_existing=once)
        self._extraction.wake()
        return stored

    async def get_binding(self, id: str) -> Binding | None:
        """The binding of that id, if this user made it or it is about this user's conversations, or None."""
        return await self._runtime.store.bindings.get(self._scope, id) if common.is_valid_id(id) else None

    async def list_bindings(self) -> list[Binding]:
        """The bindings this user made, and those that are about this user's conversations."""
        return await self._runtime.store.bindings.list_bindings(self._scope)

    async def update_binding(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`; what it is about never changes.

        What was closed before is extracted; what is closed while it is paused is not, unless someone asks for it.
        """
        return await self._extraction.update_binding(self._scope, id, extraction_policy, enabled)

    async def delete_binding(self, id: str) -> None:
        """End a binding, for everyone it is about; memories it made stay, and what was closed before is extracted."""
        await self._extraction.delete_binding(self._scope, id)

    async def run_extraction_for_conversation(
        self, conversation_id: str, extraction_version: str | None = None, *, space_id: str | None = None
    ) -> ExtractionRun:
        """Extract a conversation now, open or closed, as often as you like: what is known already is not added again.

        Every enabled binding that matches gives its jobs, at `extraction_version` instead of its own; or name a space,
        and no binding is needed. `await rc.jobs.drain()` waits for them.
        """
        if extraction_version is not None:
            self._extraction.check_version(binding_checks.validate_extraction_version(extraction_version))
        jobs = await self._runtime.store.jobs.plan(
            self._scope,
            common.validate_id("conversation", conversation_id),
            version=extraction_version,
            space_id=None if space_id is None else common.validate_id("space", space_id),
            window_length=self._extraction.window_length,
            now=self._runtime.clock(),
        )
        self._extraction.wake()
        return ExtractionRun(tuple(jobs))

    async def wait_for_extraction(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it is not an error
        """Wait until this user's conversations that were closed have become memories; False if they have not by then.

        Jobs that failed and wait for their next attempt are not waited for.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._extraction.dispatch_pending()
                now = utc_now()  # leases and retries go by the machine's clock
                # In the order in which a job goes: one that begins meanwhile is found where it was, or where it is.
                jobs = [job for status in ("queued", "running") for job in await self.list_jobs(status=status)]
                return await self._runtime.jobs.wait([job.id for job in jobs if job.due_at <= now])
        except TimeoutError:
            return False

    async def replay(
        self,
        namespace: str | None = None,
        extraction_version: str | None = None,
        *,
        on_progress: Callable[[ReplayProgress], Any] | None = None,
    ) -> ReplayReport:
        """Extract all of this user's conversations of a namespace again, the oldest first, and wait until that is done.

        `on_progress` is called as jobs end. Cancelling it cancels the jobs that were not begun.
        """
        if extraction_version is not None:
            self._extraction.check_version(binding_checks.validate_extraction_version(extraction_version))
        name = common.validate_optional_text("namespace", namespace, common.NAME_LENGTH)
        return await Replay(self._runtime, self._extraction, extraction_version, on_progress).run(self._scope, name)

    async def list_jobs(
        self, conversation_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[Job]:
        """This user's extraction jobs, the newest first."""
        return await self._runtime.store.jobs.list_jobs(
            self._scope,
            status=None if status is None else JobStatus(common.validate_choice("status", status, tuple(JobStatus))),
            conversation_id=common.validate_optional_text("conversation_id", conversation_id, common.KEY_LENGTH),
            limit=DEFAULT_JOB_LIMIT if limit is None else common.validate_count("limit", limit),
        )
