"""The options, kinds and handles of workers."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback import Tellback
from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from tellback.jobs import WorkerOptions, open_worker
from tellback.jobs.worker import EmbeddedWorker, QueueWorker
from tellback.stores import open_store
from tellback.testing.jobs.fixtures import QUICK_OPTIONS, make_spaces, queue_job
from tellback.types.jobs import JobStatus


@given(attempt=st.integers(1, 1_000), first=st.floats(0.01, 100), longest=st.floats(0.01, 10_000))
def test_backoff_grows_with_each_attempt_up_to_a_limit(attempt: int, first: float, longest: float) -> None:
    options = WorkerOptions(first_delay=first, longest_delay=longest)
    rule = min(first * 3.0 ** min(attempt - 1, 30), longest)
    assert min(0.75 * rule, longest) <= options.backoff(attempt) <= min(1.25 * rule, longest)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"lease": -1.0}, {"lease": 5.0, "heartbeat": 5.0}])
def test_invalid_options_raise_configuration_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        WorkerOptions(**wrong)


def test_open_worker_returns_the_right_worker_for_each_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(open_worker(open_store(":memory:"), {}), EmbeddedWorker)
    assert isinstance(open_worker(open_store("postgresql://db/x"), {}), QueueWorker)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert isinstance(open_worker(open_store("postgresql://db/x"), {}), EmbeddedWorker)
    assert "procrastinate is not installed" in caplog.text


async def test_jobs_are_listed_for_all_users_or_for_one(tmp_path: Path) -> None:
    async with Tellback(tmp_path / "tellback.db", worker=False) as tb:
        for name in ("maya", "noah"):
            user = tb.user(name)
            space = await user.memory.create_space("home")
            conversation = await user.conversations.create("chat")
            await user.conversations.append_user_message(conversation.id, "Hello")
            await user.memory.create_binding({"namespace": "chat", "user_id": name}, [space.id])
            await user.memory.run_extraction_for_conversation(conversation.id)
        newest, oldest = await tb.jobs.list()
        assert [newest.user_id, oldest.user_id] == ["noah", "maya"]
        assert await tb.jobs.list("queued", user_id="maya") == [oldest]
        assert await tb.jobs.list(JobStatus.QUEUED, limit=1) == [newest]
        assert await tb.jobs.list(before=newest.id) == [oldest]
        assert await tb.jobs.list(user_id="maya", tenant_id="other") == []
        assert await tb.jobs.get(newest.id) == newest
        with pytest.raises(InvalidArgumentError, match="one of queued, running, done, failed, cancelled"):
            await tb.jobs.list("lost")
        assert await tb.jobs.get("job_unknown") is None
        for method in (tb.jobs.retry, tb.jobs.cancel):
            with pytest.raises(NotFoundError):
                await method("job_unknown")


def test_synchronous_code_can_wait_for_jobs(tmp_path: Path) -> None:
    with Tellback(tmp_path / "tellback.db") as tb:
        maya = tb.user("maya")
        space = maya.memory.create_space("home")
        maya.memory.create_binding({"namespace": "chat"}, [space.id])
        conversation = maya.conversations.create("chat")
        maya.conversations.append_user_message(conversation.id, "I moved to Lisbon.")
        maya.conversations.close(conversation.id)
        tb.jobs.drain(timeout=20)
        [job] = tb.jobs.list("done")
        finished = tb.jobs.get(job.id)
        assert finished is not None
        assert finished.result
        assert len(maya.memory.list_atoms(space.id)) == 1


async def test_a_worker_runs_again_in_another_event_loop(tmp_path: Path) -> None:
    tb = Tellback(tmp_path / "tellback.db")

    async def session() -> None:
        async with tb:
            maya = tb.user("maya")
            space = await maya.memory.create_space()
            await maya.memory.create_binding({"namespace": "chat"}, [space.id])
            conversation = await maya.conversations.create("chat")
            await maya.conversations.append_user_message(conversation.id, "Hello")
            await maya.conversations.close(conversation.id)
            await tb.jobs.drain(20)
            assert len(await tb.jobs.list("done", conversation_id=conversation.id)) >= 1

    await session()
    await asyncio.to_thread(asyncio.run, session())


async def test_a_worker_on_a_read_only_store_claims_no_jobs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "tellback.db"
    store = open_store(path)
    await store.open()
    [space] = await make_spaces(store, 1)
    job = await queue_job(store, space)
    await store.close()
    async with Tellback(f"sqlite:///{path}?mode=ro", worker=QUICK_OPTIONS) as tb:
        await asyncio.sleep(QUICK_OPTIONS.poll * 2)
        waiting = await tb.jobs.get(job.id)
        assert waiting is not None
        assert waiting.status is JobStatus.QUEUED
    assert "trying again" not in caplog.text
