"""Bindings (which conversations are extracted into which spaces), extraction jobs, and usage records."""

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
    """The conversations of a namespace and a user; `"*"` means any.

    >>> ConversationScope("daily-checkin").matches("daily-checkin", "maya")
    True
    """

    namespace: str = ANY
    user_id: str = ANY

    def matches(self, namespace: str, user_id: str) -> bool:
        """Whether the scope includes conversations of that namespace and user."""
        return self.namespace in (ANY, namespace) and self.user_id in (ANY, user_id)


@dataclass(frozen=True, slots=True)
class ExtractionPolicy:
    """When conversations are extracted, and with which version of the prompt.

    `windowed` extracts every `window_turns` turns while a conversation is open; `on_conversation_closed` extracts the
    rest when it closes.

    Extract every ten turns, and the rest when the conversation closes:

    >>> ExtractionPolicy(windowed=True, window_turns=10).on_conversation_closed
    True
    """

    extraction_version: str = "v1"
    on_conversation_closed: bool = True
    windowed: bool = False
    window_turns: int = 0


@dataclass(frozen=True, slots=True)
class Binding:
    """A rule that extracts the conversations of some scopes into some spaces.

    `memory_space_ids` are spaces of the user who created the binding (`created_by`), for conversations of that user.
    Conversations of another user are extracted into that user's spaces with the same names (`memory_space_names`),
    which are created if missing.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     space = memory.create_space("life")
    ...     binding = memory.create_binding({"namespace": "chat", "user_id": "maya"}, [space.id])
    >>> binding.conversation_scope[0].namespace, binding.memory_space_names
    ('chat', ('life',))
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
        """Whether the binding applies to conversations of that namespace and user."""
        return any(scope.matches(namespace, user_id) for scope in self.conversation_scope)


class JobStatus(StrEnum):
    """The state of a job. A failed or cancelled job runs again only on request.

    >>> JobStatus.QUEUED.is_finished, JobStatus.FAILED.is_finished
    (False, True)
    """

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended and runs again only on request."""
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


@dataclass(frozen=True, slots=True)
class Job(Scoped):
    """The extraction of one window of a conversation into one space, a snapshot.

    The window is the messages from `from_seq` to `to_seq`. `attempts` counts its runs since it was queued, and `runs`
    all of its runs. `error` is the reason of the last failure, and `raw_output` the output of the model, if it could
    not be parsed. `result` counts the changes of a finished job.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     maya = tb.user("maya")
    ...     conversation = maya.chat("I keep bees.").conversation_id
    ...     [job] = maya.memory.run_extraction_for_conversation(conversation)
    >>> job.kind, (job.from_seq, job.to_seq)
    ('extract', (1, 2))
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
    """The jobs that `run_extraction_for_conversation` started: one for each binding, space and window.

    It is empty if the conversation has no messages. `id` and `status` are those of `job`: the first job that is not
    done (it may have failed), otherwise the last one.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     maya = tb.user("maya")
    ...     conversation = maya.chat("I keep bees.").conversation_id
    ...     run = maya.memory.run_extraction_for_conversation(conversation)
    ...     tb.jobs.drain()
    ...     job = maya.memory.get_job(run.id)
    >>> len(run), job.status.value
    (1, 'done')
    """

    jobs: tuple[Job, ...]

    @property
    def job(self) -> Job | None:
        """The first job that is not done (it may have failed), otherwise the last one; None if there are no jobs."""
        last = self.jobs[-1] if self.jobs else None
        return next((job for job in self.jobs if job.status is not JobStatus.DONE), last)

    @property
    def id(self) -> str | None:
        """The id of `job`; None if there are no jobs."""
        return None if self.job is None else self.job.id

    @property
    def status(self) -> JobStatus:
        """The status of `job`; DONE if there are no jobs."""
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
    """The usage of one model call for memory. `purpose` is "extraction", "reconciliation" or "summary".

    `cost_usd` is None if the price is unknown.

    >>> from datetime import UTC, datetime
    >>> from tellback.types import ChatUsage
    >>> from tellback.types.access import Scope
    >>> usage = ChatUsage(900, 60, cost_usd=0.003, model="claude-sonnet-5")
    >>> UsageRecord.from_usage(usage, Scope("acme", "default", "maya"), "extraction", datetime.now(UTC)).input_tokens
    900
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
        """Build the record of a call."""
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
    """The total usage of the calls with one `purpose` and `model` in one scope.

    `cost_usd` is the sum of the known prices; `unpriced_calls` is the number of calls without a price.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     totals = tb.user("maya").admin.usage_totals()
    >>> sum(total.cost_usd for total in totals)  # no model was called
    0
    """

    scope: Scope
    purpose: str
    model: str | None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    unpriced_calls: int
