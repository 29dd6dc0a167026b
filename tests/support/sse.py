"""Read streams of a server incrementally; and a model that the test controls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from tellback.chat.model import ChatRequest, ModelBase
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta

WAIT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of a stream; a comment has no event."""

    event: str | None
    data: Any
    id: str | None = None


class PacedModel(ModelBase):
    """A model that sends the texts put into `texts`; None ends the answer. `cancelled` is set on cancellation."""

    provider = "paced"
    model = "paced"

    def __init__(self) -> None:
        self.texts: asyncio.Queue[str | None] = asyncio.Queue()
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        self.started.set()
        try:
            while (next_text := await self.texts.get()) is not None:
                yield TextDelta(next_text)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise
        yield StreamStop("end_turn")

    async def _complete(self, request: ChatRequest) -> ChatReply:
        self.started.set()
        text = ""
        try:
            while (next_text := await self.texts.get()) is not None:
                text += next_text
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return ChatReply(text=text)


@asynccontextmanager
async def open_stream(
    url: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> AsyncIterator[tuple[httpx2.Response, AsyncIterator[Frame]]]:
    """Open a stream: its response and its frames. Leaving the block closes the connection."""
    async with httpx2.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as client:
        method = "GET" if body is None else "POST"
        async with client.stream(method, path, json=body, headers=headers) as answer:
            yield answer, parse_frames(answer.aiter_bytes())


async def parse_frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[Frame]:
    """Parse the frames of a stream, including comments."""
    buffer = b""
    async for chunk in chunks:
        *frames, buffer = (buffer + chunk).split(b"\n\n")
        for block in frames:
            yield parse_frame(block)
    assert buffer == b"", f"the stream ended within a frame: {buffer!r}"


def parse_frame(block: bytes) -> Frame:
    lines = [line.split(b": ", 1) for line in block.split(b"\n")]
    assert all(len(line) == 2 for line in lines), f"not a frame: {block!r}"
    fields = {name.decode(): value.decode() for name, value in lines}
    assert len(fields) == len(lines), f"not a frame: {block!r}"
    assert fields.keys() <= {"", "event", "data", "id", "retry"}, f"not a frame: {block!r}"
    data = json.loads(fields["data"]) if "data" in fields else None
    return Frame(fields.get("event"), data, fields.get("id"))


async def next_frame(frames: AsyncIterator[Frame], event: str | None) -> Frame:
    """Return the next frame of that event; skip others."""
    async with asyncio.timeout(WAIT_SECONDS):
        async for frame in frames:
            if frame.event == event:
                return frame
    raise AssertionError(f"the stream ended without {event!r}")


async def remaining_frames(frames: AsyncIterator[Frame]) -> list[Frame]:
    """Return all frames until the stream ends."""
    async with asyncio.timeout(WAIT_SECONDS):
        return [frame async for frame in frames]
