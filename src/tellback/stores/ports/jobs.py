"""The ports of extraction: bindings, and the jobs that they cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from tellback.types.access import Scope
from tellback.types.jobs import Binding, ExtractionPolicy, Job, JobStatus, UsageRecord, UsageTotal


class Bindings(Protocol):
    """Bindings of a tenant and app, each change with its event in the same transaction.

    - A user sees the bindings it made, and of those that match its conversations what does not name others. It may
      change those it made; others raise `NotFoundError`. Without a scope, all are seen and may be changed.
    - `create` holds for what happens from then on: a conversation that was closed before is not extracted. With
      `reuse_existing`, the user's binding of the same scopes and spaces is given back as it is, if there is one.
    - `update` leaves what is None as it is. The scope never changes. One that was paused holds for what happens from
      then on.
    """

    async def create(self, scope: Scope, binding: Binding, *, reuse_existing: bool = False) -> Binding: ...

    async def get(self, scope: Scope | None, id: str) -> Binding | None: ...

    async def list_bindings(
        self, scope: Scope | None, *, tenant_id: str | None = None, app_id: str | None = None
    ) -> list[Binding]: ...

    async def update(
        self, scope: Scope | None, id: str, *, policy: ExtractionPolicy | None, enabled: bool | None, now: datetime
    ) -> Binding: ...

    async def delete(self, scope: Scope | None, id: str, *, now: datetime) -> None: ...


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of one run: `run` is the job's `runs` when it was claimed, so that one whose lease was lost to another
    ends nothing."""

    job_id: str
    run: int
    result: Mapping[str, Any] = field(default_factory=dict)
    usage: Sequence[UsageRecord] = ()


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """What a look at new events gave: jobs, and whether there may be more events."""

    jobs: tuple[Job, ...]
    has_more: bool


class JobLog(Protocol):
    """Jobs, unique by (conversation, binding, space, version, window): in scope, or with None across users, where
    `tenant_id` and `app_id` may narrow it down.

    Moments that leases and delays go by are seconds since 1970 of the machine's clock; `now` is the clock that rows are
    dated by.

    - `dispatch` reads the events after the last ones it read, whichever process did, and makes the jobs that bindings
      ask for: windows of whole turns, each of about `window_length` characters at most, that no job of that binding,
      space and version covers yet. It and its place in the events change in one transaction; one process at a time does
      it. `has_pending_events` says whether there are events it has not seen.
    - `plan` makes the jobs of one conversation that matching bindings, or the space of `space_id` alone, ask for, at
      `version` or that of the binding, whatever their triggers; jobs that are over are put back in the queue. Raises
      `NotFoundError` for the conversation, the space, or a binding if none matches.
    - `claim` gives the next job that is due, or that of `id`, to `instance_id` until then; None if there is none. A job
      is due when its time has come, it is queued or its lease is over, and no earlier job of its space is unfinished. A
      job begun more than `max_attempts` times fails instead.
    - `extend` prolongs a lease, and says whether it was still held.
    - `finish`, `fail` and `postpone` end an attempt, if its lease is still held, and give None if not; `fail` queues
      the job again for `retry_at` or, with None, for good, with its event `extraction.failed`. `finish` writes
      `extraction.completed`. `postpone` does not count the attempt. What was used is kept in any case.
    - `release` queues again what an instance that is gone was running. `running_instances` lists those that run jobs.
    - `retry` queues a job that is over again, as new; `cancel` ends one that waits, and leaves one that is over as it
      is. Both raise `NotFoundError`.
    - `backlog` counts the jobs that are due or run, up to a hundred, and gives the moment the next delayed one is due.
    - `add_usage` keeps each record once, also if it is given again, unless its conversation was erased. `usage` lists
      calls, `usage_totals` adds them up by scope, purpose and model; both the newest first.
    """

    async def has_pending_events(self) -> bool: ...

    async def dispatch(self, *, window_length: int, limit: int, now: datetime) -> DispatchResult: ...

    async def plan(
        self,
        scope: Scope,
        conversation_id: str,
        *,
        version: str | None,
        space_id: str | None,
        window_length: int,
        now: datetime,
    ) -> list[Job]: ...

    async def get(self, scope: Scope | None, id: str) -> Job | None: ...

    async def list_jobs(
        self,
        scope: Scope | None,
        *,
        status: JobStatus | None = None,
        conversation_id: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[Job]: ...

    async def claim(
        self, *, instance_id: str, at: float, until: float, max_attempts: int, now: datetime, id: str | None = None
    ) -> Job | None: ...

    async def extend(self, id: str, run: int, *, until: float) -> bool: ...

    async def finish(self, end: JobEnd, *, now: datetime) -> Job | None: ...

    async def fail(
        self, end: JobEnd, error: str, *, raw_output: str | None, retry_at: float | None, now: datetime
    ) -> Job | None: ...

    async def postpone(self, end: JobEnd, *, until: float, now: datetime) -> Job | None: ...

    async def running_instances(self) -> list[str]: ...

    async def release(self, instance_id: str, *, now: datetime) -> list[Job]: ...

    async def retry(self, scope: Scope | None, id: str, *, now: datetime) -> Job: ...

    async def cancel(self, scope: Scope | None, id: str, *, now: datetime) -> Job: ...

    async def backlog(self, *, at: float) -> tuple[int, float | None]: ...

    async def add_usage(self, records: Sequence[UsageRecord]) -> None: ...

    async def usage(
        self,
        scope: Scope | None,
        *,
        job_id: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        before: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[UsageRecord]: ...

    async def usage_totals(
        self,
        scope: Scope | None,
        *,
        since: datetime | None,
        until: datetime | None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[UsageTotal]: ...

    async def claim_schedule(self, name: str, *, at: float, every: float) -> bool: ...
