"""Bindings (which conversations become memories, and where), extraction jobs, and the usage they cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, overload

from tellback.types.access import Scope, Scoped
from tellback.types.ids import new_id
from tellback.types.messages import ChatUsage

ANY = "*"
"""Matches every namespace, or every user."""


@dataclass(frozen=True, slots=True)
class ConversationScope:
    """Conversations of a namespace and a user; `"*"` is any.

    >>> ConversationScope("daily-checkin").matches("daily-checkin", "maya")
    True
    """

    namespace: str = ANY
    user_id: str = ANY

    def matches(self, namespace: str, user_id: str) -> bool:
        """Whether a conversation of that namespace and user is meant."""
        return self.namespace in (ANY, namespace) and self.user_id in (ANY, user_id)


@dataclass(frozen=True, slots=True)
class ExtractionPolicy:
    """When conversations are extracted, and by which version of the prompt.

    `windowed` extracts every `window_turns` turns while a conversation is open; `on_conversation_closed` what is left
    when it closes.
    """

    extraction_version: str = "v1"
    on_conversation_closed: bool = True
    windowed: bool = False
    window_turns: int = 0


@dataclass(frozen=True, slots=True)
class Binding:
    """Conversations of some scopes become memories of some spaces.

    `memory_space_ids` are spaces of whoever made it (`created_by`), which that user's conversations go to; those of
    another user go to that user's own spaces of the same names, in `memory_space_names`, made when missing.
    """

    id: str
    tenant_id: str
    app_id: str
    conversation_scope: tuple[ConversationScope, ...]
    memory_space_ids: tuple[str, ...]
    memory_space_names: tuple[str, ...]
    extraction_policy: ExtractionPolicy
    created_at: datetime
    updated_at: datetime
    enabled: bool = True
    created_by: str | None = None

    def matches(self, namespace: str, user_id: str) -> bool:
        """Whether it is about conversations of that namespace and user."""
        return any(scope.matches(namespace, user_id) for scope in self.conversation_scope)


class JobStatus(StrEnum):
    """How far a job has come. A failed or cancelled one is not run again unless someone asks for it."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_finished(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class Job(Scoped):
    """The extraction of one window of a conversation into one space, as it stood when it was read.

    The window is the messages from `from_seq` to `to_seq`. `attempts` counts how often it was begun since it was
    queued, `runs` how often at all. `error` says why the last attempt failed, and `raw_output` keeps what the model had
    said, if it could not be read. `result` counts what a job that is done has changed.
    """

    id: str
    scope: Scope
    kind: str
    status: JobStatus
    conversation_id: str
    binding_id: str
    memory_space_id: str
    extraction_version: str
    from_seq: int
    to_seq: int
    created_at: datetime
    updated_at: datetime
    due_at: datetime
    attempts: int = 0
    finished_at: datetime | None = None
    error: str | None = None
    raw_output: str | None = field(default=None, repr=False)
    result: Mapping[str, Any] = field(default_factory=dict, hash=False)
    runs: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class ExtractionRun(Sequence[Job]):
    """What `run_extraction_for_conversation` set going: a job for each binding, space and window.

    There is none if nothing was said yet. `id` and `status` are those of `job`, the first that is not done or else the
    last one.
    """

    jobs: tuple[Job, ...]

    @property
    def job(self) -> Job | None:
        """The first job that is not done, or the last one."""
        last = self.jobs[-1] if self.jobs else None
        return next((job for job in self.jobs if job.status is not JobStatus.DONE), last)

    @property
    def id(self) -> str | None:
        """The id of `job`."""
        return None if self.job is None else self.job.id

    @property
    def status(self) -> JobStatus:
        """The status of `job`."""
        return JobStatus.DONE if self.job is None else self.job.status

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        return self.jobs[index]

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self.jobs)


@dataclass(frozen=True, slots=True)
class UsageRecord(Scoped):
    """What one model call for memory cost. `purpose` is "extraction", "reconciliation" or "summary".

    `cost_usd` is None where no price is known.
    """

    id: str
    scope: Scope
    purpose: str
    created_at: datetime
    job_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    provider: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    @classmethod
    def from_usage(
        cls,
        usage: ChatUsage,
        scope: Scope,
        purpose: str,
        now: datetime,
        *,
        conversation_id: str | None = None,
        job_id: str | None = None,
    ) -> UsageRecord:
        """The record of a call."""
        return cls(
            id=new_id("use"),
            scope=scope,
            purpose=purpose,
            created_at=now,
            job_id=job_id,
            conversation_id=conversation_id,
            model=usage.model,
            provider=usage.provider,
            input_tokens=usage.input_tokens or 0,
            output_tokens=usage.output_tokens or 0,
            cost_usd=usage.cost_usd,
        )


@dataclass(frozen=True, slots=True)
class UsageTotal(Scoped):
    """Several calls added up: those of one `purpose` and `model` of one scope.

    `cost_usd` is the sum of what has a price; `unpriced_calls` counts what has none.
    """

    scope: Scope
    purpose: str
    model: str | None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unpriced_calls: int
