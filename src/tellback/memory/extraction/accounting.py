"""What a job's model calls cost."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol, TypeVar

from tellback.conversations.runtime import Runtime
from tellback.errors import ExtractionError
from tellback.memory.extraction.spending import track_usage
from tellback.types.jobs import Job, UsageRecord
from tellback.types.replies import ChatUsage


class _Metered(Protocol):
    @property
    def usage(self) -> Sequence[ChatUsage]: ...


MeteredT = TypeVar("MeteredT", bound=_Metered)


async def record_usage(
    runtime: Runtime, job: Job, purpose: str, records: list[UsageRecord], call: Awaitable[MeteredT]
) -> MeteredT:
    """What a call gives. What it cost is added to `used`, also if it fails or is cancelled."""
    with track_usage() as tracked:
        try:
            result = await call
        except BaseException as error:  # also cancellation: what was used until then is paid for
            reported = error.usage if isinstance(error, ExtractionError) else ()
            records += _usage_records(runtime, job, purpose, max(tracked, reported, key=len))
            raise
    records += _usage_records(runtime, job, purpose, result.usage)
    return result


def _usage_records(runtime: Runtime, job: Job, purpose: str, usage: Sequence[ChatUsage]) -> list[UsageRecord]:
    now = runtime.clock()
    known = {"conversation_id": job.conversation_id, "job_id": job.id}
    return [UsageRecord.from_usage(each, job.scope, purpose, now, **known) for each in usage]
