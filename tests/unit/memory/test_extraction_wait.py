"""Waiting for extraction includes a job that starts while jobs are queried."""

from __future__ import annotations

from typing import Any

import pytest

from tellback import Tellback
from tellback.types.jobs import Job


async def test_a_job_that_starts_between_two_queries_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space("default")
        await maya.memory.create_binding({"namespace": "chat", "user_id": "maya"}, [space.id])
        conversation = await maya.conversations.create("chat")
        await maya.conversations.append_user_message(conversation.id, "I keep bees.")
        [job] = await maya.memory.run_extraction_for_conversation(conversation.id)
        memory = maya.memory
        looks = 0

        async def list_jobs(*_: Any, status: str, **__: Any) -> list[Job]:
            nonlocal looks
            looks += 1
            return [job] if status == ("queued" if looks == 1 else "running") else []

        monkeypatch.setattr(memory, "list_jobs", list_jobs)
        assert not await memory.wait_for_extraction(0.2)
