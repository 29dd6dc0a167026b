"""Admin operations on all users, and lists with small pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tellback import NotFoundError, Tellback
from tellback.agent import Agent
from tellback.client import TellbackClient
from tellback.client.client import ReplayResult
from tellback.server import ServerSettings, create_app
from tellback.testing import ScriptedModel, says
from tellback.types.access import Scope
from tellback.types.ids import new_id
from tellback.types.jobs import JobStatus, UsageRecord
from tests.integration.client.server_apps import running_client
from tests.support.http_server import running_server

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_stale_conversations_of_all_users_are_closed() -> None:
    tb = Tellback(":memory:")
    async with running_client(tb) as (client, _):
        conversations = [await tb.user(name).conversations.create("chat") for name in ("maya", "tom", "ana")]
        assert await client.close_stale(timedelta(hours=1)) == []
        assert sorted(await client.close_stale(0)) == sorted(conversation.id for conversation in conversations)
        assert await client.close_stale(0) == []


async def test_a_replay_is_queued_for_all_users() -> None:
    tb = Tellback(":memory:", worker=False)
    async with running_client(tb) as (client, _):
        for name in ("maya", "tom"):
            user = client.user(name)
            space = await user.memory.create_space("default")
            await user.memory.create_binding({"namespace": "chat", "user_id": name}, [space.id])
            for namespace in ("chat", "other"):
                conversation = await user.conversations.create(namespace)
                await user.conversations.append_turn(conversation.id, "I moved to Lisbon.", {"content": "How nice!"})
        assert await client.replay("chat") == ReplayResult(conversations=2, jobs=2, skipped=0)
        assert await client.replay() == ReplayResult(conversations=4, jobs=2, skipped=2)
        assert len(await client.jobs.list()) == 2


async def test_jobs_of_a_user_are_followed_cancelled_and_retried() -> None:
    tb = Tellback(":memory:", worker=False)
    async with running_client(tb) as (client, _):
        maya = client.user("maya")
        space = await maya.memory.create_space("default")
        conversation = await maya.conversations.create("chat")
        await maya.conversations.append_turn(conversation.id, "I moved to Lisbon.", {"content": "How nice!"})
        [job] = (await maya.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)).jobs
        seen = []
        async for each in maya.memory.follow_job(job.id):
            seen.append(each.status)
            if len(seen) == 1:
                cancelled = await maya.memory.cancel_job(job.id)
        assert seen == [JobStatus.QUEUED, JobStatus.CANCELLED]
        assert cancelled.status is JobStatus.CANCELLED
        assert (await maya.memory.retry_job(job.id)).status is JobStatus.QUEUED
        for change_job in (client.user("tom").memory.retry_job, client.user("tom").memory.cancel_job):
            with pytest.raises(NotFoundError):
                await change_job(job.id)
        with pytest.raises(NotFoundError):
            await anext(client.user("tom").memory.follow_job(job.id))


async def test_usage_is_read_in_pages() -> None:
    tb = Tellback(":memory:")
    async with running_client(tb, largest_page=3, page_size=2) as (client, _):
        scope = Scope("default", "default", "maya")
        records = [
            # Two records per time: none may be lost at a page boundary.
            UsageRecord(new_id("use"), scope, "extraction", NOON + timedelta(seconds=number // 2), model="m")
            for number in range(9)
        ]
        await tb.store.jobs.add_usage(records)
        all_usage = await tb.user("maya").admin.usage()
        for found in (await client.usage(), await client.user("maya").admin.usage()):
            assert found == all_usage == records[::-1]
        assert await client.usage(before=all_usage[4].id) == all_usage[5:]
        assert len(await client.usage(limit=4)) == 4
        assert await client.usage(limit=0) == []
        [total] = await client.usage_totals()
        assert (total.calls, total.scope.user_id) == (9, "maya")
        assert await client.usage(since=NOON + timedelta(days=1)) == []


async def test_lists_are_complete_for_any_page_size() -> None:
    tb = Tellback(":memory:")
    agent = Agent(name="Wanda", goal="Chat", model=ScriptedModel([says(f"answer {number}") for number in range(4)]))
    app = create_app(tb, ServerSettings(open=True, rate_limit=None, largest_page=3, page_size=2), agents=[agent])
    async with running_server(app) as url, TellbackClient(url) as client:
        maya = client.user("maya")
        conversations = [await maya.conversations.create("chat") for _ in range(7)]
        assert await maya.conversations.list() == conversations[::-1]
        assert await maya.conversations.list(limit=5) == conversations[:1:-1]
        messages = [
            await maya.conversations.append_user_message(conversations[0].id, str(number)) for number in range(8)
        ]
        assert await maya.conversations.messages(conversations[0].id) == messages
        assert await maya.conversations.messages(conversations[0].id, limit=5) == messages[-5:]
        assert await maya.conversations.messages(conversations[0].id, after=0, limit=5) == messages[:5]
        spaces = [await maya.memory.create_space(str(number)) for number in range(5)]
        assert await maya.memory.list_spaces() == spaces
        entities = [await maya.memory.create_entity(spaces[0].id, "OBJECT", f"Thing {number}") for number in range(8)]
        assert await maya.memory.list_entities(spaces[0].id) == entities
        assert await maya.memory.list_entities(spaces[0].id, limit=2, after=entities[3]) == entities[4:6]
        for query in (None, "thing"):
            assert await maya.memory.search_entities(spaces[0].id, query) == entities
            assert await maya.memory.search_entities(spaces[0].id, query, limit=5) == entities[:5]
        for number in range(4):
            await maya.agents.respond("Wanda", f"question {number}", session="web-1")
        sessions = maya.agents.sessions("Wanda")
        created = [(await sessions.create_session(f"web-{number}")).id for number in range(2, 6)]
        assert [each.id for each in await sessions.get_user_sessions()] == [*reversed(created), "web-1"]
        texts = [text for number in range(4) for text in (f"question {number}", f"answer {number}")]
        assert [each.content for each in await sessions.get_session_messages("web-1")] == texts
        assert [_text(event) for event in await sessions.load_session_history("web-1", limit=500)] == texts
        assert [_text(event) for event in await sessions.load_session_history("web-1", limit=5)] == texts[-5:]


def _text(event: Any) -> str:
    return str(event.data.message)


@pytest.mark.parametrize("id", ["a/b", "..", ".", "a?b#c", "complete", "", "\ud800"])
async def test_impossible_session_and_agent_ids_are_not_found(id: str) -> None:
    tb = Tellback(":memory:")
    agent = Agent(name="Wanda", goal="Chat", model=ScriptedModel([]))
    async with (
        running_server(create_app(tb, ServerSettings(open=True), agents=[agent])) as url,
        TellbackClient(url) as client,
    ):
        agents = client.user("maya").agents
        sessions = agents.sessions("Wanda")
        assert await sessions.get_session(id) is None
        assert await sessions.complete_session(id) is None
        assert not await sessions.delete_session(id)
        with pytest.raises(NotFoundError):
            await sessions.get_session_messages(id)
        assert await agents.get(id) is None
        with pytest.raises(NotFoundError):
            await agents.invoke(id)
        with pytest.raises(NotFoundError):
            await agents.respond(id, "Hello")
        with pytest.raises(NotFoundError):
            await agents.sessions(id).create_session()
