"""How long an import waits for memories."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tellback.importing.remembering import MAX_RETRY_WAIT, ExtractionCounts, wait_for_memories
from tellback.types.jobs import Job, JobStatus
from tellback.types.scope import Scope
from tellback.types.times import utc_now


def job(id: str, due_in: timedelta, attempts: int = 0, space: str = "ms_1") -> Job:
    now = utc_now()
    return Job(
        id=id,
        scope=Scope("default", "default", "maya"),
        kind="extract",
        status=JobStatus.QUEUED,
        conversation_id=f"conv_{id}",
        binding_id="bind_1",
        memory_space_id=space,
        extraction_version="v1",
        from_seq=1,
        to_seq=2,
        created_at=now,
        updated_at=now,
        due_at=now + due_in,
        attempts=attempts,
    )


class FakeMemory:
    """Jobs that nobody does, until `ends` have been looked for so often."""

    def __init__(self, *jobs: Job, ends: int | None = None) -> None:
        self.jobs = list(jobs)
        self.ends = ends
        self.looks = 0

    async def wait_for_extraction(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        await asyncio.sleep(0)
        self.looks += 1
        if self.looks == self.ends:
            self.jobs = [replace(each, status=JobStatus.DONE, result={"added": 1}) for each in self.jobs]
        return not any(each.due_at <= utc_now() and not each.status.is_finished for each in self.jobs)

    async def list_jobs(
        self, conversation_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[Job]:
        found = [each for each in self.jobs if status in (None, each.status.value)]
        return [each for each in found if conversation_id in (None, each.conversation_id)]


async def wait_for_counts(memory: Any) -> ExtractionCounts:
    async with asyncio.timeout(5):
        return await wait_for_memories(memory, ["conv_first", "conv_second"], lambda progress: None)


async def test_jobs_behind_one_that_waits_long_are_not_waited_for() -> None:
    memory = FakeMemory(job("first", 2 * MAX_RETRY_WAIT, attempts=4), job("second", timedelta(0)))
    assert await wait_for_counts(memory) == ExtractionCounts(memories=0, failed=0, waiting=2)


@pytest.mark.parametrize(
    "first", [job("first", MAX_RETRY_WAIT / 2, attempts=2), job("first", 2 * MAX_RETRY_WAIT, 4, "ms_other")]
)
async def test_others_are_waited_for(first: Job) -> None:
    memory = FakeMemory(first, job("second", timedelta(0)), ends=3)
    assert (await wait_for_counts(memory)).memories == 2
    assert memory.looks == 3
