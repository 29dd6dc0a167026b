"""The client over real connections: lost responses, retries and wrong URLs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from tellback import InvalidArgumentError, Tellback, TextDelta
from tellback.agent import Agent
from tellback.client import TellbackClient
from tellback.errors import (
    NotAllowedError,
    NotAuthenticatedError,
    PreconditionFailedError,
    RateLimitedError,
    RemoteError,
    RemoteUnavailableError,
)
from tellback.server import ServerSettings, create_app
from tellback.testing import ScriptedModel, says
from tests.integration.client.server_apps import DroppedResponses
from tests.support.http_server import free_port, running_server


@asynccontextmanager
async def served(model: Any = None, **settings: Any) -> AsyncIterator[tuple[Tellback, str]]:
    tb = Tellback(":memory:", model=model)
    async with running_server(create_app(tb, ServerSettings(**settings))) as url:
        yield tb, url


async def key(tb: Tellback, role: Any = "app", **kwargs: Any) -> str:
    return (await tb.keys.create(role, tenant_id="acme", **kwargs)).secret


async def test_a_lost_response_does_not_repeat_a_change() -> None:
    tb = Tellback(":memory:")
    app = DroppedResponses(create_app(tb), times=0)
    async with running_server(app) as url, TellbackClient(url, await key(tb)) as client:
        maya = client.user("maya")
        space = await maya.memory.create_space("default")
        app.left = 1
        atom = await maya.memory.add_atom(space.id, "Maya keeps bees")
        assert [each.id for each in await maya.memory.list_atoms(space.id)] == [atom.id]
        app.left = 2
        conversation = await maya.conversations.create("chat")
        assert [each.id for each in await maya.conversations.list()] == [conversation.id]
        app.left = 1
        message = await maya.conversations.append_user_message(conversation.id, "Hello", idempotency_key="one")
        assert [each.id for each in await maya.conversations.messages(conversation.id)] == [message.id]


async def test_unsafe_requests_are_not_retried() -> None:
    tb = Tellback(":memory:")
    app = DroppedResponses(create_app(tb), times=0)
    async with running_server(app) as url, TellbackClient(url, await key(tb)) as client:
        conversation = await client.user("maya").conversations.create("chat")
        app.left, before = 1, app.seen
        with pytest.raises(RemoteUnavailableError):
            await client.user("maya").conversations.append_user_message(conversation.id, "Hello")
        assert app.seen == before + 1


async def test_errors_are_the_same_as_in_process() -> None:
    async with served() as (tb, url):
        async with TellbackClient(url) as anonymous_client:
            with pytest.raises(NotAuthenticatedError, match="no credential"):
                await anonymous_client.user("maya").conversations.list()
        async with TellbackClient(url, await key(tb, "user", user_id="maya")) as mayas_client:
            assert await mayas_client.user().conversations.list() == []
            with pytest.raises(NotAllowedError, match="only act for user"):
                await mayas_client.user("tom").conversations.list()
            with pytest.raises(NotAllowedError, match="admin"):
                await mayas_client.keys.list()
        async with TellbackClient(url, await key(tb)) as app:
            with pytest.raises(InvalidArgumentError, match="X-Tellback-User"):
                await app.user().conversations.list()


async def test_an_unreachable_or_wrong_server_is_reported() -> None:
    async with TellbackClient("http://127.0.0.1:1", "tb_x", retries=0) as client:
        with pytest.raises(RemoteUnavailableError, match=r"127\.0\.0\.1:1 cannot be reached"):
            await client.user("maya").conversations.list()

    async def plain(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
            await send({"type": "http.response.body", "body": b"<html>"})
        else:
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})

    async with running_server(plain) as url, TellbackClient(url, "tb_x") as client:
        with pytest.raises(RemoteError, match="check that the URL is a Tellback server"):
            await client.user("maya").conversations.list()
    with pytest.raises(Exception, match="URL of a server"):
        TellbackClient("tellback.db")


async def test_rate_limited_requests_are_retried_or_raise() -> None:
    async with served(rate_limit=None) as (tb, url):
        secret = await key(tb, rate_limit=1)
        async with TellbackClient(url, secret, retries=0) as client:
            list_calls = (client.user("maya").conversations.list() for _ in range(3))
            with pytest.raises(RateLimitedError) as caught:
                [await each for each in list_calls]
        assert caught.value.retry_after > 0


async def test_deltas_are_streamed_and_closing_cancels_the_turn() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    class SlowModel(ScriptedModel):
        async def _stream(self, request: Any) -> AsyncIterator[Any]:
            try:
                yield TextDelta("One")
                started.set()
                await asyncio.sleep(60)
            finally:
                cancelled.set()

    async with (
        served(SlowModel([says("never")]), rate_limit=None) as (tb, url),
        TellbackClient(url, await key(tb)) as client,
    ):
        items = client.user("maya").chat_stream("Count!", space=None)
        assert await anext(items) == TextDelta("One")
        await asyncio.wait_for(started.wait(), 10)
        await items.aclose()
        await asyncio.wait_for(cancelled.wait(), 10)


async def test_the_feed_resumes_after_a_server_restart(tmp_path: Any) -> None:
    file = str(tmp_path / "tellback.db")
    port, seen = free_port(), []
    async with Tellback(file, worker=False) as tb:
        secret = await key(tb, "admin")
    client = TellbackClient(f"http://127.0.0.1:{port}", secret)

    async def follow() -> None:
        async for event in client.events.subscribe(types=["conversation.created"]):
            seen.append(event.subject_id)  # noqa: PERF401 - streamed

    created: list[str] = []
    follow_task: asyncio.Task[None] | None = None
    for _ in range(3):
        tb = Tellback(file, worker=False)
        app = create_app(tb)
        async with running_server(app, port):
            follow_task = follow_task or asyncio.create_task(follow())
            created.append((await client.user("maya").conversations.create("chat")).id)
            async with asyncio.timeout(15):
                while seen != created:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            app.state.stopping.set()  # like a server during shutdown, since the feed would not end otherwise
        async with Tellback(file, worker=False) as tb:  # while the server is down
            created.append((await tb.user("maya", "acme").conversations.create("chat")).id)
    assert follow_task is not None
    follow_task.cancel()
    await asyncio.gather(follow_task, return_exceptions=True)
    await client.close()
    assert seen == created[:-1]


async def test_the_client_works_synchronously() -> None:
    def run_sync_chat(url: str, secret: str) -> list[str]:
        with TellbackClient(url, secret) as client:
            maya = client.user("maya")
            conversation = maya.conversations.create("notes")
            maya.conversations.append_user_message(conversation.id, "Hello")
            texts = [each.text for each in maya.conversations.messages(conversation.id)]
            deltas = [item for item in maya.chat_stream("Hi", space=None) if isinstance(item, TextDelta)]
            return [*texts, *(delta.text for delta in deltas)]

    async with served(ScriptedModel([says("Hello, Maya!")])) as (tb, url):
        assert await asyncio.to_thread(run_sync_chat, url, await key(tb)) == ["Hello", "Hello, Maya!"]


async def test_an_agent_with_routes_responds_over_the_client() -> None:
    model = ScriptedModel([says("Where to?"), says("To Rome!")])
    tb = Tellback(":memory:")
    agent = Agent(name="Wanda", goal="Chat", model=model)
    async with (
        running_server(create_app(tb, agents=[agent])) as url,
        TellbackClient(url, await key(tb)) as client,
    ):
        agents = client.user("maya").agents
        first = await agents.respond("Wanda", "Hello", session="web-1")
        assert (first.message, first.session.version) == ("Where to?", 1)
        chunks = [chunk async for chunk in agents.respond_stream("Wanda", "Rome", session=first.session)]
        assert chunks[-1].done
        assert chunks[-1].response is not None
        assert chunks[-1].response.message == "".join(chunk.delta for chunk in chunks) == "To Rome!"
        with pytest.raises(PreconditionFailedError):
            await agents.respond("Wanda", "Again", session=first.session)
        sessions = agents.sessions("Wanda")
        stored = await sessions.get_session("web-1")
        assert stored is not None
        assert (stored.version, stored.user_id) == (2, "maya")
        assert [each.content for each in await sessions.get_session_messages("web-1")] == [
            *("Hello", "Where to?", "Rome", "To Rome!")
        ]
        assert len(await sessions.load_session_history("web-1")) == 4
        completed = await sessions.complete_session("web-1")
        assert completed is not None
        assert completed.status == "completed"
        assert await client.user("tom").agents.sessions("Wanda").get_session("web-1") is None
        assert await sessions.delete_session("web-1")
        assert not await sessions.delete_session("web-1")


async def test_many_open_feeds_do_not_block_other_requests() -> None:
    async with served(concurrency=None, rate_limit=None) as (tb, url):
        created = await tb.user("maya", "acme").conversations.create("chat")
        async with TellbackClient(url, await key(tb), timeout=5) as client, AsyncExitStack() as stack:
            maya = client.user("maya")
            feeds = [await stack.enter_async_context(aclosing(maya.events.subscribe())) for _ in range(120)]
            first = await asyncio.gather(*(anext(feed) for feed in feeds))
            assert {event.subject_id for event in first} == {created.id}
            assert await maya.conversations.get(created.id) == created


@pytest.mark.parametrize(
    "options", [{}, {"close_after": None}, {"close_after": 60}, {"close_after": timedelta(days=2)}]
)
async def test_a_chat_closes_as_in_process(options: dict[str, Any]) -> None:
    async with served(ScriptedModel([says("Hello!")] * 3)) as (tb, url), TellbackClient(url, await key(tb)) as client:
        found = []
        for maya in (tb.user("maya", "acme"), client.user("tom")):
            reply = await maya.chat("Hi", space=None, **options)
            assert reply.conversation_id is not None
            conversation = await maya.conversations.get(reply.conversation_id)
            assert conversation is not None
            found.append(conversation.close_after)
        assert found[0] == found[1]
        assert (found[1] is None) is (options == {"close_after": None})
        assert [item async for item in client.user("ana").chat_stream("Hi", space=None, **options)]
        [conversation] = await client.user("ana").conversations.list()
        assert conversation.close_after == found[0]
