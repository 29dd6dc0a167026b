"""`user.memory` and `user.working_context` of a server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

from tellback.client.admin import RemoteBindings, RemoteJobs, decode_binding, decode_job
from tellback.client.transport import RemoteHandle
from tellback.errors import RemoteUnavailableError, StoreError
from tellback.memory.bindings import PolicyLike, ScopeLike
from tellback.types.jobs import Binding, ConversationScope, ExtractionRun, Job
from tellback.types.memory import WorkingContext
from tellback.wire.arguments import (
    build_path,
    encode_arguments,
    encode_datetime,
    encode_mapping,
    require_server_id,
)
from tellback.wire.operations import MemoryOperations
from tellback.wire.values import WorkingContextWire

MEMORY_PATH = "ai-memory"
MAX_WAIT_SECONDS = 20.0
"""How many seconds one request waits."""
RECONNECT_SECONDS = 1.0


class RemoteWorkingContextBuilder(RemoteHandle):
    """Builds the working context of a user's conversations, on a server."""

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
        """Put together what a model should know before it answers in this conversation, or with None, in a new one."""
        body = encode_arguments(
            conversation_id=conversation_id,
            memory_space_id=memory_space_id,
            recall_query=recall_query,
            recent_turns=recent_turns,
            recall_limit=recall_limit,
            token_budget=token_budget,
            include_rolling_summary=include_rolling_summary,
            always_on_category_names=always_on_category_names or None,
            template_id=template_id,
            now=encode_datetime("now", now),
            min_score=min_score,
        )
        path = build_path("ai-working-context")
        payload = await self._transport.call("POST", path, user=self._user, body=body, is_read=True)
        context: WorkingContext = WorkingContextWire.model_validate(payload).value()
        return context


class RemoteMemory(RemoteHandle, MemoryOperations):
    """One user's memory, kept by a server. It has the methods of `user.memory`."""

    async def create_binding(
        self,
        conversation_scope: ScopeLike | Iterable[ScopeLike],
        memory_space_ids: Iterable[str],
        extraction_policy: PolicyLike | None = None,
        *,
        once: bool = False,
    ) -> Binding:
        """From now on, let conversations become memories."""
        if isinstance(conversation_scope, ConversationScope | Mapping):
            scopes: Any = encode_mapping(conversation_scope)
        else:
            scopes = [encode_mapping(each) for each in conversation_scope]
        body = encode_arguments(
            memory_space_ids=memory_space_ids, extraction_policy=encode_mapping(extraction_policy), once=once or None
        )
        return decode_binding(
            await self._post(build_path(MEMORY_PATH, "bindings"), {**body, "conversationScope": scopes})
        )

    async def get_binding(self, id: str) -> Binding | None:
        """The binding of that id, if this user made it or it is about this user's conversations, or None."""
        return await self._bindings.get(id)

    async def list_bindings(self) -> list[Binding]:
        """The bindings this user made, and those that are about this user's conversations."""
        return await self._bindings.list()

    async def update_binding(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`; what it is about never changes."""
        return await self._bindings.update(id, extraction_policy, enabled)

    async def delete_binding(self, id: str) -> None:
        """End a binding, for everyone it is about; memories it made stay."""
        await self._bindings.delete(id)

    async def run_extraction_for_conversation(
        self, conversation_id: str, extraction_version: str | None = None, *, space_id: str | None = None
    ) -> ExtractionRun:
        """Extract a conversation now, open or closed: what is known already is not added again."""
        body = encode_arguments(
            conversation_id=conversation_id, extraction_version=extraction_version, memory_space_id=space_id
        )
        found = await self._post(build_path(MEMORY_PATH, "extractions"), body)
        return ExtractionRun(tuple(decode_job(each) for each in found["jobs"]))

    async def list_jobs(
        self, conversation_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[Job]:
        """This user's extraction jobs, the newest first."""
        return await self._jobs.list(status, conversation_id=conversation_id, limit=100 if limit is None else limit)

    async def get_job(self, id: str) -> Job | None:
        """A job as it stands now, or None."""
        return await self._jobs.get(id)

    async def retry_job(self, id: str) -> Job:
        """Queue a job that failed, was cancelled or is done again, as if it were new."""
        return await self._jobs.retry(id)

    async def cancel_job(self, id: str) -> Job:
        """End a job that has not ended yet."""
        return await self._jobs.cancel(id)

    async def follow_job(self, id: str) -> AsyncGenerator[Job, None]:
        """A job as it stands, and again at each change, until it is over. While the server is away it waits."""
        path, job = build_path(MEMORY_PATH, "jobs", require_server_id("job", id), "events"), None
        while job is None or not job.status.is_finished:
            try:
                async with aclosing(self._transport.stream_events("GET", path, user=self._user)) as events:
                    async for item in events:
                        found = decode_job(json.loads(item.data))
                        if found != job:
                            job = found
                            yield job
            except (RemoteUnavailableError, StoreError):
                if job is None:
                    raise
            if job is None or not job.status.is_finished:
                await asyncio.sleep(RECONNECT_SECONDS)

    async def wait_for_extraction(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it is not an error
        """Wait until this user's closed conversations have become memories; False if they have not by then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = (
                MAX_WAIT_SECONDS if deadline is None else min(MAX_WAIT_SECONDS, max(0.0, deadline - time.monotonic()))
            )
            path = build_path(MEMORY_PATH, "extractions", "wait")
            payload = await self._transport.call(
                "POST", path, user=self._user, body={"timeout": remaining}, is_read=True
            )
            if payload["done"] or (deadline is not None and time.monotonic() >= deadline):
                return bool(payload["done"])

    @property
    def _bindings(self) -> RemoteBindings:
        return RemoteBindings(self._transport, self._user, path=(MEMORY_PATH, "bindings"))

    @property
    def _jobs(self) -> RemoteJobs:
        return RemoteJobs(self._transport, self._user, path=(MEMORY_PATH, "jobs"))
