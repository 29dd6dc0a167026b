"""Running a job: usage is recorded in any case, and an invalid result fails immediately."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tellback import Category, ChatUsage, Tellback, WorkerOptions
from tellback.errors import ProviderOverloadedError
from tellback.memory import ExtractedFact, Extraction, Window
from tellback.testing import ScriptedModel, answers, raises, says
from tellback.types.jobs import Job
from tellback.types.memory import CategoryKind
from tellback.user import User
from tests.unit.memory.extraction.factories import fact_output

USAGE = ChatUsage(input_tokens=1000, output_tokens=10)
FAST_WORKER = WorkerOptions(first_delay=0.05, poll=0.2, heartbeat=0.1)


async def open_job(tb: Tellback, *words: str) -> tuple[User, Job]:
    """Store messages of a user, and queue their extraction."""
    user = tb.user("maya")
    space = await user.memory.create_space("chat")
    conversation = await user.conversations.create("chat")
    for each in words:
        await user.conversations.append_turn(conversation.id, each, {"content": "I see."})
    [job] = await user.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
    return user, job


async def used_input_tokens(user: User) -> list[int | None]:
    return [record.input_tokens for record in await user.admin.usage()]


async def wait_until_finished(user: User, job: Job) -> Job:
    async with asyncio.timeout(30):
        while True:
            [found] = [each for each in await user.memory.list_jobs() if each.id == job.id]
            if found.status.is_finished:
                return found
            await asyncio.sleep(0.02)


async def test_usage_before_a_provider_error_is_recorded() -> None:
    found = answers({"facts": [], "entities": []}, usage=USAGE)
    script = [says("no JSON", usage=USAGE), raises(ProviderOverloadedError("busy", retryable=True)), found]
    with ScriptedModel(script) as model:
        async with Tellback(":memory:", model=model, worker=FAST_WORKER) as tb:
            user, job = await open_job(tb, "I live in Porto.")
            assert (await wait_until_finished(user, job)).attempts == 2
            assert await used_input_tokens(user) == [1000, 1000]


async def test_usage_before_a_cancellation_is_recorded(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    second_call_started = asyncio.Event()
    script = [says("no JSON", usage=USAGE), says("never", delay=30, expect=lambda _: second_call_started.set())]
    async with Tellback(url, model=ScriptedModel(script), worker=FAST_WORKER) as tb:
        _, job = await open_job(tb, "I live in Porto.")
        async with asyncio.timeout(30):
            await second_call_started.wait()
        await tb.jobs.cancel(job.id)
    async with Tellback(url) as tb:  # closing waits for running work
        assert await used_input_tokens(tb.user("maya")) == [1000]


class FixedExtractor:
    """A custom extractor that returns a fixed result."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    async def extract(self, window: Window) -> Extraction:
        fact_fields = {"text": "User has a fact.", "category": Category("x", CategoryKind.FACT), **self.fields}
        return Extraction((ExtractedFact(message_ids=(window.messages[0].id,), **fact_fields),), usage=(USAGE,))


@pytest.mark.parametrize(
    "fields", [{"category": Category("x", CategoryKind.PATTERN)}, {"text": "a\ud800"}, {"importance": 99}, {"text": ""}]
)
async def test_the_result_of_a_custom_extractor_is_validated(fields: dict[str, Any]) -> None:
    async with Tellback(":memory:", extractor=FixedExtractor(**fields)) as tb:
        user, job = await open_job(tb, "Hello.")
        finished = await wait_until_finished(user, job)
        assert (finished.status.value, finished.attempts) == ("failed", 1)
        assert "facts.0" in str(finished.error)
        assert await used_input_tokens(user) == [1000]
        assert await user.memory.list_atoms(job.memory_space_id) == []


async def test_the_model_corrects_a_year_that_is_too_early() -> None:
    def found(**dates: str) -> Any:
        return answers({"facts": [fact_output("User lived in Porto.", **dates)], "entities": []})

    with ScriptedModel([found(until="0001-01-01"), found(until="2020")]) as model:
        async with Tellback(":memory:", model=model) as tb:
            user, job = await open_job(tb, "I lived in Porto.")
            assert (await wait_until_finished(user, job)).status.value == "done"
    assert "0001-01-01" in str(model.requests[-1].messages[-1])
