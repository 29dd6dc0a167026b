"""How long an import waits for memories, and importing the same chats again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.importers import import_chats
from tellback.importers.importer import MAX_RETRY_WAIT, ExtractionCounts, wait_for_memories
from tellback.types.access import Scope
from tellback.types.ids import utc_now
from tellback.types.jobs import Job, JobStatus
from tests.unit.importers.chat_exports import write_json


def make_job(id: str, due_in: timedelta, attempts: int = 0, space: str = "ms_1") -> Job:
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
    """A memory whose jobs stay queued until call number `ends` of `wait_for_extraction` finishes all of them."""

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


async def test_an_import_does_not_wait_for_jobs_behind_one_with_a_long_retry_delay() -> None:
    memory = FakeMemory(make_job("first", 2 * MAX_RETRY_WAIT, attempts=4), make_job("second", timedelta(0)))
    assert await wait_for_counts(memory) == ExtractionCounts(memories=0, failed=0, waiting=2)


@pytest.mark.parametrize(
    "first", [make_job("first", MAX_RETRY_WAIT / 2, attempts=2), make_job("first", 2 * MAX_RETRY_WAIT, 4, "ms_other")]
)
async def test_an_import_waits_for_other_jobs(first: Job) -> None:
    memory = FakeMemory(first, make_job("second", timedelta(0)), ends=3)
    assert (await wait_for_counts(memory)).memories == 2
    assert memory.looks == 3


HI = {"role": "user", "content": "Hi"}
MESSAGES = st.fixed_dictionaries(
    {
        "conversation": st.sampled_from("abc"),
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "content": st.sampled_from(["Hi", "Hello", "I walked to the sea.", "", " \u0000"]),
    },
    optional={"id": st.sampled_from(["1", "2"]), "created_at": st.sampled_from(["2024-03-01", "soon", 1e300])},
)


@settings(max_examples=15)
@example([{"conversation": "a", **HI}, {"conversation": "a", **HI, "created_at": "2024-03-01"}], 1)
@given(st.lists(MESSAGES, min_size=1, max_size=12), st.integers(0, 12))
def test_importing_twice_or_in_parts_equals_importing_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("twice")
    complete, part = write_json(folder / "whole.jsonl", lines), write_json(folder / "part.jsonl", lines[: max(cut, 1)])
    asyncio.run(compare(complete, part))


async def compare(complete: Path, part: Path) -> None:
    async with Tellback(":memory:", worker=False) as tb:
        for user, files in {"once": [complete], "twice": [complete, complete], "in parts": [part, complete]}.items():
            for file in files:
                await import_chats(tb.user(user), file, extract=False)
        once, twice, in_parts = [await stored_texts(tb, user) for user in ("once", "twice", "in parts")]
    assert twice == once
    assert sorted(chain(*in_parts)) == sorted(chain(*once))


async def stored_texts(tb: Tellback, user: str) -> list[list[str]]:
    conversations = tb.user(user).conversations
    return [
        [
            f"{conversation.session_id} {each.role} {each.text}"
            for each in await conversations.messages(conversation.id, None, True)
        ]
        for conversation in reversed(await conversations.list())
    ]
