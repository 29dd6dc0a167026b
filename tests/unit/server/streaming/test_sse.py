"""Event streams without a socket: what is sent and when, and how the iterator is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.errors import NotFoundError
from tellback.server import ServerSettings
from tellback.server.lifecycle import ShutdownSignal
from tellback.server.streaming.sse import BUFFER_BYTES, HEARTBEAT, EventStream, encode_frame
from tellback.types import TextDelta
from tellback.wire.turns import encode_delta
from tests.support.sse import parse_frame

WAIT_SECONDS = 10.0


class Connection:
    """A client that can disconnect. It reads everything, and pauses while `can_take` is cleared."""

    def __init__(self) -> None:
        self.started: dict[str, Any] | None = None
        self.bodies: list[bytes] = []
        self.is_complete = False
        self.can_take = asyncio.Event()
        self.can_take.set()
        self.is_gone = asyncio.Event()
        self.received = asyncio.Event()
        self.scope = {"type": "http", "app": SimpleNamespace(state=SimpleNamespace()), "state": {"request_id": "req_1"}}

    async def receive(self) -> dict[str, Any]:
        await self.is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.started = message
            return
        await self.can_take.wait()
        self.bodies.append(message["body"])
        self.is_complete = not message.get("more_body", False)
        self.received.set()

    async def serve(self, frames: AsyncGenerator[bytes, None], **settings: Any) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            stream = EventStream(frames, ServerSettings(**settings), retry=None)
            await stream(self.scope, self.receive, self.send)


class Frames:
    """An iterator that records whether it was closed."""

    def __init__(self, *pieces: bytes | Exception, waits: bool = False) -> None:
        self.pieces = pieces
        self.waits = waits
        self.sent_count = 0
        self.is_closed = False

    async def __call__(self) -> AsyncGenerator[bytes, None]:
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                self.sent_count += 1
                yield piece
            if self.waits:
                await asyncio.Event().wait()
        finally:
            self.is_closed = True


async def test_available_frames_are_sent_together() -> None:
    client, frames = Connection(), Frames(*[encode_frame("text", b"{}")] * 1_000)
    await client.serve(frames())
    assert b"".join(client.bodies) == encode_frame("text", b"{}") * 1_000
    assert len(client.bodies) < 10
    assert client.is_complete
    assert frames.is_closed


async def test_the_buffer_is_bounded() -> None:
    client, frames = Connection(), Frames(*[b"x" * 1_000] * 1_000)
    client.can_take.clear()
    task = asyncio.create_task(client.serve(frames()))
    await asyncio.sleep(0.05)
    assert frames.sent_count <= 2 * BUFFER_BYTES / 1_000 + 2
    client.can_take.set()
    await task
    assert sum(map(len, client.bodies)) == 1_000_000


async def test_a_disconnect_closes_the_iterator() -> None:
    client, frames = Connection(), Frames(b"one", waits=True)
    task = asyncio.create_task(client.serve(frames()))
    await client.received.wait()
    client.is_gone.set()
    await task
    assert frames.is_closed
    assert not client.is_complete


async def test_a_stalled_client_is_disconnected() -> None:
    client, frames = Connection(), Frames(b"one", waits=True)
    client.can_take.clear()
    await client.serve(frames(), stalled_seconds=0.05)
    assert frames.is_closed


async def test_a_heartbeat_is_sent_during_silence() -> None:
    client, frames = Connection(), Frames(b"one", waits=True)
    task = asyncio.create_task(client.serve(frames(), heartbeat_seconds=0.02))
    async with asyncio.timeout(WAIT_SECONDS):
        while client.bodies[-3:] != [HEARTBEAT] * 3:
            client.received.clear()
            await client.received.wait()
    client.is_gone.set()
    await task


async def test_an_error_before_the_first_frame_is_raised() -> None:
    client, frames = Connection(), Frames(NotFoundError("conversation", "conv_1"))
    with pytest.raises(NotFoundError):
        await client.serve(frames())
    assert client.started is None


async def test_a_later_error_is_the_last_frame() -> None:
    client, frames = Connection(), Frames(encode_frame("text", b"{}"), NotFoundError("conversation", "conv_1"))
    await client.serve(frames())
    *_, last, rest = b"".join(client.bodies).split(b"\n\n")
    assert rest == b""
    assert parse_frame(last).event == "error"
    assert parse_frame(last).data["code"] == "not-found"
    assert parse_frame(last).data["requestId"] == "req_1"
    assert client.is_complete


async def test_a_cancelled_stream_leaves_no_task() -> None:
    client, frames = Connection(), Frames(b"one", waits=True)
    before = asyncio.all_tasks()
    task = asyncio.create_task(client.serve(frames()))
    await client.received.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert frames.is_closed
    assert asyncio.all_tasks() == before


async def test_no_stream_starts_during_shutdown() -> None:
    client, frames = Connection(), Frames(b"one")
    ShutdownSignal.for_app(client.scope["app"]).set()
    await client.serve(frames())
    assert client.started is not None
    assert client.started["status"] == 503
    assert frames.sent_count == 0


@pytest.mark.parametrize(
    ("event", "id", "data"),
    [("a\nb", None, b"{}"), ("a", "1\n2", b"{}"), ("a", "1\r2", b"{}"), ("a", None, b"{\n}"), ("a", "\0", b"{}")],
)
def test_frames_cannot_contain_line_breaks(event: str, id: str | None, data: bytes) -> None:
    with pytest.raises(ValueError, match="line breaks"):
        encode_frame(event, data, id)


@given(st.text(st.characters()))
def test_any_text_fits_into_one_frame(text: str) -> None:
    event, data = encode_delta(TextDelta(text)) or ("", b"")
    frame = encode_frame(event, data, 7)
    assert frame.endswith(b"\n\n")
    assert frame.count(b"\n\n") == 1
    assert parse_frame(frame[:-2]).data == {"text": text}
