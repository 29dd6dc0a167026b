"""Server-sent events, as they come off the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from tellback.errors import RemoteError

MAX_FRAME_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    event: str
    data: str
    id: str | None = None


async def parse_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[ServerEvent, None]:
    """The events in a stream of bytes; comments, which keep it alive, are left out.

    Lines are split as the protocol says, and not where other characters look like the end of one.
    """
    buffer, searched = bytearray(), 0
    carriage_return = b""
    async for chunk in chunks:
        chunk = carriage_return + chunk
        carriage_return = b"\r" if chunk.endswith(b"\r") else b""  # what it is, the next piece tells
        buffer += chunk[: len(chunk) - len(carriage_return)].replace(b"\r\n", b"\n")
        start = 0
        while (end := buffer.find(b"\n\n", max(start, searched - 1))) >= 0:
            event = _parse_event(_check_size(buffer[start:end]))
            start = searched = end + 2
            if event is not None:
                yield event
        del buffer[:start]
        searched = len(buffer)
        _check_size(buffer)


def _check_size(block: bytearray) -> bytearray:
    """What is an event, or will be: its end, or half of it, does not count."""
    if len(block) - block.endswith(b"\n") > MAX_FRAME_BYTES:
        raise RemoteError(f"The server sent an event of more than {MAX_FRAME_BYTES} bytes.")
    return block


def _parse_event(block: bytearray) -> ServerEvent | None:
    event, data, id = "message", [], None
    for line in block.decode("utf-8", errors="replace").split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            id = value
    return ServerEvent(event, "\n".join(data), id) if data else None
