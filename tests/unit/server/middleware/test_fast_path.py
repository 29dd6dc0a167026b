"""The fast path responds exactly like the ordinary route."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.server.middleware.fast_path import FastPathMiddleware
from tests.support.http_server import app_client

TEXTS = st.text(max_size=30) | st.sampled_from(["x" * 2_000, "\x00", "Hi", ""])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
BODIES = st.dictionaries(
    st.sampled_from(
        ["content", "idempotencyKey", "traceId", "visibility", "createdAt", "trace_id", "contents", "metadata"]
    ),
    VALUES | st.sampled_from(["user", "internal", "hidden", "2026-03-01T12:00:00Z", "2026-03-01"]),
    max_size=4,
)
RAW = st.sampled_from(
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"content": NaN}',
        b'{"content": "\\ud800"}',
        b"\xff",
        b'{"content": "a", "content": "b"}',
    ]
)
MEDIA = st.sampled_from(["application/json", "application/json; charset=utf-8", "text/plain", ""])
IDS = st.sampled_from(["known", "conv_00", "closed", "a%2Fb", "\u00e9", "x" * 150])


def response_shape(answer: Any) -> Any:
    """Return a response without its varying parts."""
    body = answer.json() if answer.content else None
    new = ("id", "seq", "turnId", "createdAt", "requestId")
    stored = {name: value for name, value in body.items() if name not in new} if isinstance(body, dict) else body
    return answer.status_code, answer.headers["content-type"], stored


def test_the_fast_path_responds_like_the_route() -> None:
    with asyncio.Runner() as runner:
        tb = Tellback(":memory:", worker=False, embedder=None)
        runner.run(tb.open())
        app = create_app(tb, ServerSettings(open=True, text_length=1_000), opens=False)

        @given(body=BODIES.map(lambda each: json.dumps(each).encode()) | RAW, id=IDS, media=MEDIA)
        @settings(max_examples=200, deadline=None)
        def check(body: bytes, id: str, media: str) -> None:
            runner.run(compare_paths(tb, app, body, id, media))

        try:
            check()
        finally:
            runner.run(tb.close())


async def compare_paths(tb: Tellback, app: Any, body: bytes, id: str, media: str) -> None:
    maya = tb.user("local")
    conversation, closed = await maya.conversations.create("chat"), await maya.conversations.create("chat")
    await maya.conversations.close(closed.id)
    conversation_id = {"known": conversation.id, "closed": closed.id}.get(id, id)
    async with app_client(app) as http:
        path, headers = f"/ai-conversations/{conversation_id}/user-messages", {"content-type": media}
        ordinary = response_shape(await http.post(f"{path}?way=ordinary", content=body, headers=headers))
        fast_response = response_shape(await http.post(path, content=body, headers=headers))
        if ordinary[0] == 201 and b"dempotencyKey" in body:
            ordinary = fast_response  # the second request with a key returns the first message
        assert fast_response == ordinary


async def test_a_plain_text_uses_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[str] = []
    ordinary = FastPathMiddleware.__init__

    def init(self: FastPathMiddleware, app: Any, route: Any) -> None:
        async def record_call(scope: Any, receive: Any, send: Any) -> None:
            passed.append(scope["path"])
            await app(scope, receive, send)

        ordinary(self, record_call, route)

    monkeypatch.setattr(FastPathMiddleware, "__init__", init)
    async with Tellback(":memory:", worker=False) as tb:
        conversation = await tb.user("local").conversations.create("chat")
        path = f"/ai-conversations/{conversation.id}/user-messages"
        async with app_client(create_app(tb, ServerSettings(open=True), opens=False)) as http:
            assert (await http.post(path, json={"content": "Hello"})).status_code == 201
            assert passed == []
            assert (await http.post(path, json={"content": "Hi"}, headers={"Idempotency-Key": "a"})).status_code == 201
            assert (await http.post(path, json={"content": [{"type": "text", "text": "Hi"}]})).status_code == 201
            assert passed == [path, path]
