"""The feed over HTTP on every store: missed events first, then new ones, each once and only to its user."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tests.support.http_server import running_server
from tests.support.sse import Frame, next_frame, open_stream

# The server behaves the same on a file and in memory, so the file is enough.
pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)

MESSAGE_APPENDED = "message.appended"


@pytest.fixture
async def server(tb: Tellback) -> AsyncIterator[str]:
    async with running_server(create_app(tb, ServerSettings(), opens=False)) as url:
        yield url


async def append_messages(tb: Tellback, user_id: str, tenant_id: str, *texts: str) -> None:
    user = tb.user(user_id, tenant_id)
    conversation = await user.conversations.find_or_create("chat")
    for text in texts:
        await user.conversations.append_user_message(conversation.id, text)


async def ids(frames: AsyncIterator[Frame], count: int) -> list[int]:
    return [int((await next_frame(frames, MESSAGE_APPENDED)).id or 0) for _ in range(count)]


async def test_a_feed_resumes_and_belongs_to_one_user(tb: Tellback, server: str) -> None:
    secret = (await tb.keys.create("user", tenant_id="acme", user_id="maya")).secret
    headers = {"Authorization": f"Bearer {secret}"}
    await append_messages(tb, "maya", "acme", "one", "two")
    await append_messages(tb, "maya", "globex", "not hers")
    async with open_stream(server, f"/ai-events?after=0&types={MESSAGE_APPENDED}", headers=headers) as (_, frames):
        seen = await ids(frames, 2)
        await append_messages(tb, "omar", "acme", "not hers")
        await append_messages(tb, "maya", "acme", "three")
        seen += await ids(frames, 1)
    writing = asyncio.create_task(append_messages(tb, "maya", "acme", *map(str, range(20))))
    resume_headers = {**headers, "Last-Event-ID": str(seen[-1])}
    async with open_stream(server, f"/ai-events?types={MESSAGE_APPENDED}", headers=resume_headers) as (_, frames):
        seen += await ids(frames, 20)
    await writing
    stored = await tb.events.read(0, types=[MESSAGE_APPENDED], tenant_id="acme", user_id="maya")
    assert seen == [event.position for event in stored]
