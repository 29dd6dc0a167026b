"""The extraction service: it runs extraction jobs, on demand and as a replay of older conversations."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tellback import validation
from tellback.errors import InvalidArgumentError, JobLostError, NotFoundError
from tellback.memory import bindings
from tellback.memory.bindings import PolicyLike
from tellback.memory.embedding import EmbeddingService
from tellback.memory.extraction.extractors import ExtractorLike, record_usage, resolve_extractor, validate_extraction
from tellback.memory.extraction.reconciliation.reconciler import Reconciler
from tellback.memory.extraction.values import Extraction, Extractor, Window, as_decider
from tellback.memory.recall_service import RecallService
from tellback.runtime import Runtime
from tellback.types.access import Scope
from tellback.types.conversations import StoredMessage
from tellback.types.jobs import Binding, Job, JobStatus, UsageRecord

__all__ = ["ReplayProgress", "ReplayReport"]

BATCH_SIZE = 100

CONTEXT_MESSAGES = 4
"""How many messages before a window are passed along as context."""

ROLES = ("user", "assistant")

REPLAY_BATCH_SIZE = 100
POLL_SECONDS = 0.1


class ExtractionService:
    """Runs extraction for one store."""

    def __init__(
        self, runtime: Runtime, embedding: EmbeddingService, recall: RecallService, extractor: ExtractorLike
    ) -> None:
        self._runtime = runtime
        self._configured = extractor
        self._reconciler = Reconciler(runtime, embedding, recall)

    def check_version(self, version: str) -> None:
        """Raise `ConfigurationError` if there is no prompt of that version."""
        check = getattr(self.extractor, "check_version", None)
        if check is not None:
            check(version)

    async def dispatch_pending(self) -> None:
        """Create the jobs for all events so far."""
        has_more = True
        while has_more:
            now = self._runtime.clock()
            batch = await self._runtime.store.jobs.dispatch(
                window_length=self._runtime.window_length, limit=BATCH_SIZE, now=now
            )
            has_more = batch.has_more

    async def update_binding(
        self, scope: Scope | None, id: str, extraction_policy: PolicyLike | None, enabled: bool | None
    ) -> Binding:
        """Change or pause a binding of a user or, without a scope, of any user."""
        policy = None if extraction_policy is None else bindings.validate_policy(extraction_policy)
        if policy is not None:
            self.check_version(policy.extraction_version)
        if enabled is not None and not isinstance(enabled, bool):
            raise InvalidArgumentError(f"enabled must be True or False, got {enabled!r:.80}.")
        if enabled is False:
            await self.dispatch_pending()
        updated = await self._runtime.store.bindings.update(
            scope, validation.validate_id("binding", id), policy=policy, enabled=enabled, now=self._runtime.clock()
        )
        self._runtime.jobs.wake()
        return updated

    async def delete_binding(self, scope: Scope | None, id: str) -> None:
        """Delete a binding. Conversations closed before are still extracted."""
        await self.dispatch_pending()
        await self._runtime.store.bindings.delete(
            scope, validation.validate_id("binding", id), now=self._runtime.clock()
        )

    @property
    def extractor(self) -> Any:
        """The configured extractor; by default an `LlmExtractor` if there is a model, otherwise a verbatim one."""
        return resolve_extractor(self._configured, self._runtime.model)

    async def run_job(self, job: Job) -> None:
        """Run a job, and end it in the transaction that changes the space. The usage of its calls is stored even if it
        fails."""
        window = await self._load_window(job)
        extractor = self.extractor
        if hasattr(extractor, "drafts"):
            await self._reconciler.add_drafts(job, extractor.drafts(window))
            return
        usage: list[UsageRecord] = []
        try:
            extraction = await record_usage(self._runtime, job, "extraction", usage, _extract(extractor, window))
            await self._reconciler.reconcile(job, window, extraction, as_decider(extractor), usage)
        except BaseException:
            await asyncio.shield(self._runtime.store.jobs.add_usage(usage))
            raise

    async def _load_window(self, job: Job) -> Window:
        log = self._runtime.store.conversations
        conversation = await log.get(job.scope, job.conversation_id)
        if conversation is None:
            raise JobLostError(job.id)  # the conversation was erased, and the job with it
        found = await log.messages(
            job.scope, conversation.id, after=job.from_seq - 1, before=job.to_seq + 1, from_start=True
        )
        before: Sequence[StoredMessage] = ()
        if job.from_seq > 1:
            before = await log.messages(job.scope, conversation.id, before=job.from_seq, limit=CONTEXT_MESSAGES)
        return Window(conversation, _visible_messages(found), _visible_messages(before), job.extraction_version)


async def _extract(extractor: Extractor, window: Window) -> Extraction:
    return validate_extraction(await extractor.extract(window), window)


def _visible_messages(messages: Sequence[StoredMessage]) -> tuple[StoredMessage, ...]:
    """Return the messages that the user saw: no tool, system or internal messages, which may contain recalled
    memories."""
    return tuple(
        message
        for message in messages
        if message.role in ROLES and message.visibility == "user" and message.text.strip()
    )


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """The progress of a replay: the numbers of conversations planned, and of jobs planned, done and failed so far.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     maya = tb.user("maya")
    ...     reply = maya.chat("I keep bees.")
    ...     steps = []
    ...     report = maya.memory.replay(on_progress=steps.append)
    >>> steps[-1].done, steps[-1].jobs
    (1, 1)
    """

    conversations: int
    jobs: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The result of a replay. `failed` has the failed and cancelled jobs, each with its `error`; `skipped` counts the
    conversations that no binding matches, or that were erased.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     maya = tb.user("maya")
    ...     reply = maya.chat("I keep bees.")
    ...     report = maya.memory.replay()
    >>> report.conversations, report.done, report.failed
    (1, 1, ())
    """

    conversations: int
    jobs: int
    done: int
    failed: tuple[Job, ...]
    skipped: int


class Replay:
    """One replay: it plans all jobs, then waits for them."""

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
        """Replay the conversations of one user or, with `scope` None, of all users."""
        # Create jobs that do not belong to the replay first, because cancelling must not cancel them.
        await self._extraction.dispatch_pending()
        try:
            async for conversation_scope, id in self._find_conversations(scope, namespace, tenant_id, app_id):
                await self._plan_conversation(conversation_scope, id)
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
            tenant_id=tenant_id,
            app_id=app_id,
            user_id=user_id,
            namespace=namespace,
            after=after,
            limit=REPLAY_BATCH_SIZE,
        ):
            for each in found:
                yield each
            after = found[-1][1]

    async def _plan_conversation(self, scope: Scope, id: str) -> None:
        self._conversations += 1
        # Shielded from cancellation: the planned jobs must be known, to cancel them.
        self._planning = asyncio.ensure_future(self._plan_jobs(scope, id))
        try:
            await asyncio.shield(self._planning)
        except NotFoundError:  # no binding matches, or the conversation was erased
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
            window_length=self._runtime.window_length,
            now=self._runtime.clock(),
        )
        self._pending.update({job.id: job for job in jobs})
        self._created.update(job.id for job in jobs if job.id not in pending_before)
        self._job_count += len(jobs)
        self._runtime.jobs.wake()

    async def _poll(self) -> None:
        """Count the jobs that ended. Jobs of a space end in order, so checking the first ones is enough."""
        before = len(self._pending)
        for job in list(self._pending.values())[:REPLAY_BATCH_SIZE]:
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
        """Cancel the jobs that this replay created. Jobs that were queued before stay queued."""
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
