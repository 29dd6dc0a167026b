"""What a job's model calls cost."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from tellback.conversations.runtime import Runtime
from tellback.errors import ExtractionError
from tellback.memory.extraction.spending import spending
from tellback.types.jobs import Job, UsageRecord
from tellback.types.replies import ChatUsage


class _Charged(Protocol):
    @property
    def usage(self) -> Sequence[ChatUsage]: ...


T = TypeVar("T", bound=_Charged)


async def accounted(runtime: Runtime, job: Job, purpose: str, used: list[UsageRecord], call: Awaitable[T]) -> T:
    """What a call gives. What it cost is added to `used`, also if it fails or is cancelled."""
    with spending() as spent:
        try:
            given = await call
        except BaseException as error:  # also cancellation: what was used until then is paid for
            told = error.usage if isinstance(error, ExtractionError) else ()
            used += _records(runtime, job, purpose, max(spent, told, key=len))
            raise
    used += _records(runtime, job, purpose, given.usage)
    return given


def _records(runtime: Runtime, job: Job, purpose: str, usage: Sequence[ChatUsage]) -> list[UsageRecord]:
    now = runtime.clock()
    known = {"conversation_id": job.conversation_id, "job_id": job.id}
    return [UsageRecord.of(each, job.scope, purpose, now, **known) for each in usage]
