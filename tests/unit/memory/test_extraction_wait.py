"""Waiting for extraction includes every unfinished job."""

from __future__ import annotations

from typing import Any

import pytest

from tellback import Tellback
from tellback.memory.memory import DEFAULT_JOB_LIMIT
from tellback.types.jobs import Job, JobStatus


async def test_a_job_that_starts_between_two_queries_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space("default")
        await maya.memory.create_binding({"namespace": "chat", "user_id": "maya"}, [space.id])
        conversation = await maya.conversations.create("chat")
        await maya.conversations.append_user_message(conversation.id, "I keep bees.")
        [job] = await maya.memory.run_extraction_for_conversation(conversation.id)
        looks = 0

        async def list_jobs(*_: Any, status: JobStatus, **__: Any) -> list[Job]:
            nonlocal looks
            looks += 1
            return [job] if status is (JobStatus.QUEUED if looks == 1 else JobStatus.RUNNING) else []

        monkeypatch.setattr(tb.store.jobs, "list_jobs", list_jobs)
        assert not await maya.memory.wait_for_extraction(0.2)


async def test_more_jobs_than_one_page_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space("default")
        await maya.memory.create_binding({"namespace": "chat", "user_id": "maya"}, [space.id])
        for number in range(DEFAULT_JOB_LIMIT + 1):
            conversation = await maya.conversations.create("chat")
            await maya.conversations.append_user_message(conversation.id, f"I keep {number} bees.")
            await maya.memory.run_extraction_for_conversation(conversation.id)
        waited: list[str] = []

        async def wait(ids: list[str]) -> bool:
            waited.extend(ids)
            return True

        monkeypatch.setattr(maya.memory._runtime.jobs, "wait", wait)
        assert await maya.memory.wait_for_extraction()
        assert len(set(waited)) == DEFAULT_JOB_LIMIT + 1
