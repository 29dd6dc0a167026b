"""The change feed and job progress through a real socket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from tellback import Tellback
from tellback.jobs import WorkerOptions
from tellback.server import ServerSettings, create_app
from tellback.server.lifecycle import ShutdownSignal
from tellback.server.streaming import change_feed
from tellback.testing import ScriptedModel, raises
from tellback.user import User
from tests.support.http_server import running_server
from tests.support.sse import WAIT_SECONDS, Frame, next_frame, open_stream, remaining_frames

EVENTS = "/ai-events"


@asynccontextmanager
async def served(tb: Tellback, **settings: Any) -> AsyncIterator[tuple[str, FastAPI]]:
    app = create_app(tb, ServerSettings(**{"open": True, **settings}), opens=False)
    async with running_server(app) as url:
        yield url, app


async def append_messages(user: User, *texts: str) -> None:
    """Append messages. Each one creates an event, after the event of the conversation."""
    conversation = await user.conversations.find_or_create("chat")
    for text in texts:
        await user.conversations.append_user_message(conversation.id, text)


async def appended(frames: AsyncIterator[Frame], count: int) -> list[Frame]:
    return [await next_frame(frames, "message.appended") for _ in range(count)]


async def test_a_feed_without_a_position_sends_only_new_changes() -> None:
    async with Tellback(":memory:") as tb, served(tb) as (url, _):
        maya = tb.user("local")
        await append_messages(maya, "before")
        async with open_stream(url, EVENTS) as (answer, frames):
            ready = await next_frame(frames, "ready")
            assert answer.status_code == 200
            assert ready.id == str(await tb.events.latest())
            await append_messages(maya, "after")
            [event] = await appended(frames, 1)
            assert event.data["userId"] == "local"
            assert event.id == str(event.data["position"]) == str(await tb.events.latest())


async def test_the_types_parameter_filters_events() -> None:
    async with Tellback(":memory:") as tb, served(tb) as (url, _):
        query = f"{EVENTS}?after=0&types=conversation.created,conversation.closed"
        async with open_stream(url, query) as (_, frames):
            await next_frame(frames, "ready")
            await append_messages(tb.user("local"), "one", "two")
            [conversation] = await tb.user("local").conversations.list()
            await tb.user("local").conversations.close(conversation.id)
            found = [await anext(frames), await anext(frames)]
            assert [frame.event for frame in found] == ["conversation.created", "conversation.closed"]


async def test_tenants_and_users_have_separate_feeds() -> None:
    async with Tellback(":memory:") as tb, served(tb, open=False) as (url, _):
        keys = {tenant: (await tb.keys.create("admin", tenant_id=tenant)).secret for tenant in ("acme", "zeta")}
        acme = {"Authorization": f"Bearer {keys['acme']}"}
        as_maya = {**acme, "X-Tellback-User": "maya"}
        zeta = {"Authorization": f"Bearer {keys['zeta']}", "X-Tellback-User": "maya"}
        async with (
            open_stream(url, EVENTS, headers=as_maya) as (_, mayas_frames),
            open_stream(url, f"{EVENTS}?everyone=true", headers=acme) as (_, of_acme),
            open_stream(url, f"{EVENTS}?everyone=true", headers=zeta) as (_, zetas_frames),
        ):
            for frames in (mayas_frames, of_acme, zetas_frames):
                await next_frame(frames, "ready")
            for user_id, tenant_id in (("maya", "acme"), ("tom", "acme"), ("maya", "zeta"), ("maya", "acme")):
                await append_messages(tb.user(user_id, tenant_id), "hello")
            owners = [(frame.data["tenantId"], frame.data["userId"]) for frame in await appended(mayas_frames, 2)]
            assert owners == [("acme", "maya")] * 2
            owners = [(frame.data["tenantId"], frame.data["userId"]) for frame in await appended(of_acme, 3)]
            assert owners == [("acme", "maya"), ("acme", "tom"), ("acme", "maya")]
            [zetas_frame] = await appended(zetas_frames, 1)
            assert zetas_frame.data["tenantId"] == "zeta"


async def test_only_admins_can_follow_all_users() -> None:
    async with Tellback(":memory:") as tb, served(tb, open=False) as (url, _):
        secret = (await tb.keys.create("app", tenant_id="acme")).secret
        async with httpx2.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {secret}"}) as client:
            assert (await client.get(f"{EVENTS}?everyone=true")).status_code == 403
            assert (await client.get(EVENTS)).status_code == 422  # no user
            for wrong in ("-1", "x", "1" * 30, "٣"):
                answer = await client.get(EVENTS, params={"after": wrong}, headers={"X-Tellback-User": "maya"})
                assert answer.status_code == 422


async def test_a_feed_resumes_after_restarts_without_gaps_or_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missed events may be in the buffer or only in the store, and the client may be slow."""
    monkeypatch.setattr(change_feed, "MAX_RECENT", 7)
    monkeypatch.setattr(change_feed, "MAX_QUEUED", 5)
    rng = random.Random(7)
    last_id: str | None = "0"
    seen: list[int] = []
    for _ in range(5):
        async with Tellback(tmp_path / "kept.db") as tb, served(tb, heartbeat_seconds=0.1) as (url, _):
            maya = tb.user("local")
            for _ in range(3):
                writing = asyncio.create_task(append_messages(maya, *["hello"] * rng.randint(0, 30)))
                await asyncio.sleep(rng.choice([0, 0.01]))
                async with open_stream(url, EVENTS, headers={"Last-Event-ID": last_id or ""}) as (_, frames):
                    for _ in range(rng.randint(0, 12)):
                        frame = await anext(frames)
                        if frame.event in (None, "ready"):
                            continue
                        seen.append(frame.data["position"])
                        last_id = frame.id
                await writing
    async with Tellback(tmp_path / "kept.db") as tb, served(tb, heartbeat_seconds=0.1) as (url, _):
        last_position = await tb.events.latest()
        async with open_stream(url, EVENTS, headers={"Last-Event-ID": last_id or ""}) as (_, frames):
            async for frame in frames:
                if frame.event not in (None, "ready"):
                    seen.append(frame.data["position"])
                if seen and seen[-1] == last_position:
                    break
    assert seen == list(range(1, last_position + 1))


async def test_a_feed_ends_when_the_server_stops() -> None:
    async with Tellback(":memory:") as tb, served(tb) as (url, app), open_stream(url, EVENTS) as (_, frames):
        await next_frame(frames, "ready")
        ShutdownSignal.for_app(app).set()
        assert await remaining_frames(frames) == []


async def test_a_feed_ends_when_its_credential_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_feed, "CHECK_SECONDS", 0.05)
    async with Tellback(":memory:") as tb, served(tb, open=False) as (url, _):
        key = await tb.keys.create("user", tenant_id="acme", user_id="maya")
        headers = {"Authorization": f"Bearer {key.secret}"}
        async with open_stream(url, EVENTS, headers=headers) as (_, frames):
            await next_frame(frames, "ready")
            await tb.keys.revoke(key.key.id)
            [*_, last_frame] = await remaining_frames(frames)
            assert (last_frame.event, last_frame.data["code"]) == ("error", "not-authenticated")


async def test_all_clients_share_one_read_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Tellback(":memory:") as tb, served(tb) as (url, _):
        await append_messages(tb.user("local"), "hello")
        reads: list[Any] = []
        read = tb.events.read

        async def counting_read(*args: Any, **kwargs: Any) -> Any:
            reads.append(args)
            return await read(*args, **kwargs)

        monkeypatch.setattr(tb.events, "read", counting_read)

        async def follow() -> list[Frame]:
            async with open_stream(url, EVENTS) as (_, frames):
                await next_frame(frames, "ready")
                ready.release()
                return await appended(frames, 5)

        ready = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            follow_tasks = [group.create_task(follow()) for _ in range(10)]
            for _ in follow_tasks:
                await asyncio.wait_for(ready.acquire(), WAIT_SECONDS)
            await append_messages(tb.user("local"), *["hello"] * 5)
        assert all(task.result() == follow_tasks[0].result() for task in follow_tasks)
        assert reads == []


async def job_of(tb: Tellback) -> str:
    user = tb.user("local")
    space = await user.memory.create_space("default")
    await append_messages(user, "I moved to Lisbon.")
    [conversation] = await user.conversations.list()
    run = await user.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
    assert run.id is not None
    return run.id


async def test_a_job_is_followed_until_it_is_done() -> None:
    async with Tellback(":memory:", extractor="verbatim") as tb, served(tb) as (url, _):
        id = await job_of(tb)
        async with open_stream(url, f"/ai-memory/jobs/{id}/events") as (_, frames):
            found = [frame.data for frame in await remaining_frames(frames) if frame.event == "job"]
        assert found[-1]["status"] == "done"
        assert all(before != after for before, after in pairwise(found))


async def test_a_job_is_followed_until_it_has_failed() -> None:
    model = ScriptedModel([raises(ZeroDivisionError("cannot"))])
    once = WorkerOptions(attempts=1)
    async with Tellback(":memory:", model=model, extractor="llm", worker=once) as tb, served(tb) as (url, _):
        id = await job_of(tb)
        async with open_stream(url, f"/ai-memory/jobs/{id}/events") as (_, frames):
            found = [frame.data for frame in await remaining_frames(frames) if frame.event == "job"]
        assert found[-1]["status"] == "failed"


async def test_a_job_is_followed_until_it_is_cancelled() -> None:
    async with Tellback(":memory:", worker=False) as tb, served(tb) as (url, _):
        id = await job_of(tb)
        async with open_stream(url, f"/ai-memory/jobs/{id}/events") as (_, frames):
            assert (await next_frame(frames, "job")).data["status"] == "queued"
            await tb.jobs.cancel(id)
            assert [frame.data["status"] for frame in await remaining_frames(frames)] == ["cancelled"]


async def test_another_users_job_is_not_found() -> None:
    async with Tellback(":memory:", worker=False) as tb, served(tb) as (url, _):
        id = await job_of(tb)
        async with open_stream(url, f"/ai-memory/jobs/{id}/events", headers={"X-Tellback-User": "tom"}) as (answer, _):
            assert answer.status_code == 404


async def test_following_a_job_ends_when_the_server_stops() -> None:
    async with Tellback(":memory:", worker=False) as tb, served(tb) as (url, app):
        id = await job_of(tb)
        async with open_stream(url, f"/ai-memory/jobs/{id}/events") as (_, frames):
            await next_frame(frames, "job")
            ShutdownSignal.for_app(app).set()
            assert await remaining_frames(frames) == []
