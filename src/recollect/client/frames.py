"""Server-sent events, as they come off the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from recollect.errors import RemoteError

LARGEST_FRAME = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream."""

    event: str
    data: str
    id: str | None = None


async def frames_of(pieces: AsyncIterator[bytes]) -> AsyncGenerator[Frame, None]:
    """The events in a stream of bytes; comments, which keep it alive, are left out.

    Lines are split as the protocol says, and not where other characters look like the end of one.
    """
    rest = b""
    async for piece in pieces:
        rest += piece.replace(b"\r\n", b"\n")
        if len(rest) > LARGEST_FRAME:
            raise RemoteError(f"The server sent an event of more than {LARGEST_FRAME} bytes.")
        *whole, rest = rest.split(b"\n\n")
        for block in whole:
            frame = _frame(block)
            if frame is not None:
                yield frame


def _frame(block: bytes) -> Frame | None:
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
    return Frame(event, "\n".join(data), id) if data else None
