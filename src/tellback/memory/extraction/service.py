"""The extraction service: runs jobs. A window is loaded, extracted, and reconciled with what the space holds."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tellback import validation
from tellback.errors import InvalidArgumentError, JobLostError
from tellback.memory import bindings
from tellback.memory.bindings import PolicyLike
from tellback.memory.embedding import EmbeddingService
from tellback.memory.extraction.extractors import ExtractorLike, resolve_extractor, validate_extraction
from tellback.memory.extraction.model_calls import record_usage
from tellback.memory.extraction.reconciliation.reconciler import Reconciler
from tellback.memory.extraction.values import Extraction, Extractor, Window, as_decider
from tellback.memory.recall_service import RecallService
from tellback.runtime import Runtime
from tellback.types.access import Scope
from tellback.types.conversations import StoredMessage
from tellback.types.jobs import Binding, Job, UsageRecord

BATCH_SIZE = 100

CONTEXT_MESSAGES = 4
"""How many messages before a window help to understand it."""

ROLES = ("user", "assistant")


class ExtractionService:
    """Extraction on one store."""

    def __init__(
        self, runtime: Runtime, embedding: EmbeddingService, recall: RecallService, extractor: ExtractorLike
    ) -> None:
        self._runtime = runtime
        self._configured = extractor
        self._reconciler = Reconciler(runtime, embedding, recall)

    def check_version(self, version: str) -> None:
        """Raise `ConfigurationError` if there is no such version of the prompt."""
        check = getattr(self.extractor, "check_version", None)
        if check is not None:
            check(version)

    async def dispatch_pending(self) -> None:
        """Make the jobs of all that has happened so far."""
        has_more = True
        while has_more:
            now = self._runtime.clock()
            batch = await self._runtime.store.jobs.dispatch(window_length=self.window_length, limit=BATCH_SIZE, now=now)
            has_more = batch.has_more

    async def update_binding(
        self, scope: Scope | None, id: str, extraction_policy: PolicyLike | None, enabled: bool | None
    ) -> Binding:
        """Change when a binding extracts, or pause it; of a user's, or anyone's without a scope."""
        policy = None if extraction_policy is None else bindings.validate_policy(extraction_policy)
        if policy is not None:
            self.check_version(policy.extraction_version)
        if enabled is not None and not isinstance(enabled, bool):
            raise InvalidArgumentError(f"enabled is True or False, not {enabled!r:.80}.")
        if enabled is False:
            await self.dispatch_pending()
        updated = await self._runtime.store.bindings.update(
            scope, validation.validate_id("binding", id), policy=policy, enabled=enabled, now=self._runtime.clock()
        )
        self.wake()
        return updated

    async def delete_binding(self, scope: Scope | None, id: str) -> None:
        """End a binding; what was closed before is extracted."""
        await self.dispatch_pending()
        await self._runtime.store.bindings.delete(
            scope, validation.validate_id("binding", id), now=self._runtime.clock()
        )

    @property
    def window_length(self) -> int:
        """How many characters of a conversation are read at once."""
        return self._runtime.window_length

    def wake(self) -> None:
        """Tell this process's worker that there may be jobs."""
        self._runtime.jobs.wake()

    @property
    def extractor(self) -> Any:
        """What reads windows: what was given or, where nothing was, a model if there is one."""
        return resolve_extractor(self._configured, self._runtime.model)

    async def run_job(self, job: Job) -> None:
        """Do a job, and end it in the transaction that changes the space. What its calls cost is kept in any case."""
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
            raise JobLostError(job.id)  # erased, and the job with it
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
    """What the person saw: no tools, no system messages, nothing internal, where recalled memories stand."""
    return tuple(
        message
        for message in messages
        if message.role in ROLES and message.visibility == "user" and message.text.strip()
    )
