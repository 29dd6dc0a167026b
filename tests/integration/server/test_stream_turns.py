"""Turns through a real socket: streamed, cancelled on disconnect, and finished on shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from fastapi import FastAPI

from tellback import Tellback
from tellback.concurrency import cancel_and_wait
from tellback.errors import ProviderTimeoutError
from tellback.server import ServerSettings, create_app
from tellback.server.lifecycle import ShutdownSignal
from tellback.testing import ScriptedModel, raises, says
from tests.support.http_server import running_server
from tests.support.sse import WAIT_SECONDS, PacedModel, next_frame, open_stream, remaining_frames

CHAT = "/ai-conversations/chat"
STREAM_BODY = {"text": "Hello?", "stream": True}


@asynccontextmanager
async def serve_chat(model: Any, **settings: Any) -> AsyncIterator[tuple[str, Tellback, FastAPI]]:
    async with Tellback(":memory:", model=model) as tb:
        app = create_app(tb, ServerSettings(open=True, **settings), opens=False)
        async with running_server(app) as url:
            yield url, tb, app


async def ask_then_fail(url: str, body: dict[str, Any], model: PacedModel, path: str = CHAT) -> None:
    """Send a request and disconnect once the model was called."""
    async with httpx2.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as client:
        request_task = asyncio.create_task(client.post(path, json=body))
        await asyncio.wait_for(model.started.wait(), WAIT_SECONDS)
        await cancel_and_wait(request_task)


async def test_deltas_arrive_before_the_turn_ends() -> None:
    model = PacedModel()
    async with serve_chat(model) as (url, _, _):
        model.texts.put_nowait("Hel")
        async with open_stream(url, CHAT, STREAM_BODY) as (answer, frames):
            assert (await next_frame(frames, "text")).data == {"text": "Hel"}
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert answer.headers["cache-control"] == "no-store"
            model.texts.put_nowait("lo!")
            assert (await next_frame(frames, "text")).data == {"text": "lo!"}
            model.texts.put_nowait(None)
            stop, result = await remaining_frames(frames)
            assert (stop.event, stop.data["reason"]) == ("stop", "end_turn")
            assert result.event == "result"
            assert result.data["text"] == "Hello!"


async def test_the_accept_header_requests_a_stream() -> None:
    async with serve_chat(ScriptedModel([says("Hi.")])) as (url, _, _):
        headers = {"Accept": "text/event-stream"}
        async with open_stream(url, CHAT, {"text": "Hello?"}, headers) as (_, frames):
            assert (await next_frame(frames, "result")).data["text"] == "Hi."


async def test_a_disconnect_from_a_stream_cancels_the_model_call() -> None:
    model = PacedModel()
    async with serve_chat(model) as (url, tb, _):
        model.texts.put_nowait("Hel")
        async with open_stream(url, CHAT, STREAM_BODY) as (_, frames):
            await next_frame(frames, "text")
        await asyncio.wait_for(model.cancelled.wait(), WAIT_SECONDS)
        [conversation] = await tb.user("local").conversations.list()
        assert [stored.role for stored in await tb.user("local").conversations.messages(conversation.id)] == ["user"]


async def test_a_disconnect_before_the_first_delta_cancels_the_model_call() -> None:
    model = PacedModel()
    async with serve_chat(model) as (url, _, _):
        await ask_then_fail(url, STREAM_BODY, model)
        await asyncio.wait_for(model.cancelled.wait(), WAIT_SECONDS)


async def test_a_disconnect_from_a_plain_turn_cancels_the_model_call() -> None:
    model = PacedModel()
    async with serve_chat(model) as (url, tb, _):
        await ask_then_fail(url, {"text": "Hello?"}, model)
        await asyncio.wait_for(model.cancelled.wait(), WAIT_SECONDS)
        model.texts.put_nowait("Again.")
        model.texts.put_nowait(None)
        async with httpx2.AsyncClient(base_url=url) as client:  # the conversation is no longer claimed
            answer = await client.post(CHAT, json={"text": "Still there?", "wait": 10})
        assert answer.json()["text"] == "Again."
        assert len(await tb.user("local").conversations.list()) == 1


async def test_a_disconnect_from_a_summary_cancels_the_model_call() -> None:
    model = PacedModel()
    async with Tellback(":memory:", model=model, summary_every=None) as tb:
        conversations = tb.user("local").conversations
        conversation = await conversations.create("chat")
        for number in range(30):
            await conversations.append_turn(conversation.id, f"What is {number}?", {"content": "A number."})
        async with running_server(create_app(tb, ServerSettings(open=True), opens=False)) as url:
            await ask_then_fail(url, {}, model, f"/ai-conversations/{conversation.id}/rolling-summary")
            await asyncio.wait_for(model.cancelled.wait(), WAIT_SECONDS)


async def test_a_silent_stream_sends_heartbeats() -> None:
    model = PacedModel()
    async with (
        serve_chat(model, heartbeat_seconds=0.05) as (url, _, _),
        open_stream(url, CHAT, STREAM_BODY) as (_, frames),
    ):
        first = await anext(frames)
        assert (first.event, first.data) == (None, None)
        for _ in range(3):
            await next_frame(frames, None)
        model.texts.put_nowait("Hi.")
        model.texts.put_nowait(None)
        assert (await next_frame(frames, "result")).data["text"] == "Hi."


async def test_a_client_that_stops_reading_is_disconnected() -> None:
    model = PacedModel()
    async with serve_chat(model, stalled_seconds=0.3) as (url, _, _):
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=2**12)
        body = b'{"text": "Hello?", "stream": true}'
        head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        writer.write(head.encode() + b"\r\n\r\n" + body)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not model.cancelled.is_set():
                    if model.texts.qsize() < 10:
                        model.texts.put_nowait("x" * 100_000)
                    await asyncio.sleep(0.001)
        finally:
            writer.transport.abort()


async def test_an_error_before_the_first_delta_is_an_ordinary_response() -> None:
    async with serve_chat(ScriptedModel([raises(ProviderTimeoutError("secret host"))])) as (url, _, _):
        async with open_stream(url, "/ai-conversations/conv_1/run-turn", {"userText": "Hi", "stream": True}) as (
            answer,
            _,
        ):
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"
        async with open_stream(url, CHAT, STREAM_BODY) as (answer, _):
            assert answer.status_code == 504
            body = (await answer.aread()).decode()
            assert "provider-timeout" in body
            assert "secret host" not in body


async def test_an_error_after_the_first_delta_is_the_last_frame() -> None:
    model = ScriptedModel([raises(ProviderTimeoutError("secret host"), after="Hel")])
    async with serve_chat(model) as (url, _, _), open_stream(url, CHAT, STREAM_BODY) as (answer, frames):
        assert answer.status_code == 200
        found = await remaining_frames(frames)
        assert [frame.event for frame in found] == [None, "text", "error"]
        assert found[-1].data["code"] == "provider-timeout"
        assert "secret host" not in str(found[-1].data)


async def test_unexpected_errors_do_not_leak_internal_details() -> None:
    model = ScriptedModel([raises(ZeroDivisionError("the inside"), after="Hel")])
    async with serve_chat(model) as (url, _, _), open_stream(url, CHAT, STREAM_BODY) as (_, frames):
        last_frame = (await remaining_frames(frames))[-1]
        assert (last_frame.event, last_frame.data["code"], last_frame.data["status"]) == ("error", "failed", 500)
        assert "the inside" not in str(last_frame.data)


async def test_a_stopping_server_finishes_turns_and_starts_none() -> None:
    model = PacedModel()
    model.texts.put_nowait("Hel")
    async with serve_chat(model) as (url, _, app), open_stream(url, CHAT, STREAM_BODY) as (_, frames):
        await next_frame(frames, "text")
        ShutdownSignal.for_app(app).set()
        async with httpx2.AsyncClient(base_url=url) as client:
            for body in (STREAM_BODY, {"text": "Hello?"}):
                refused_response = await client.post(CHAT, json=body)
                assert (refused_response.status_code, refused_response.headers["retry-after"]) == (503, "1")
                assert refused_response.json()["code"] == "stopping"
            assert (await client.get("/ai-events")).status_code == 503
        model.texts.put_nowait("lo!")
        model.texts.put_nowait(None)
        assert (await remaining_frames(frames))[-1].data["text"] == "Hello!"
