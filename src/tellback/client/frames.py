"""Server-sent events, as they come off the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from tellback.errors import RemoteError

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
    kept, searched = bytearray(), 0
    held = b""
    async for piece in pieces:
        piece = held + piece
        held = b"\r" if piece.endswith(b"\r") else b""  # what it is, the next piece tells
        kept += piece[: len(piece) - len(held)].replace(b"\r\n", b"\n")
        begin = 0
        while (end := kept.find(b"\n\n", max(begin, searched - 1))) >= 0:
            frame = _frame(_checked(kept[begin:end]))
            begin = searched = end + 2
            if frame is not None:
                yield frame
        del kept[:begin]
        searched = len(kept)
        _checked(kept)


def _checked(block: bytearray) -> bytearray:
    """What is an event, or will be: its end, or half of it, does not count."""
    if len(block) - block.endswith(b"\n") > LARGEST_FRAME:
        raise RemoteError(f"The server sent an event of more than {LARGEST_FRAME} bytes.")
    return block


def _frame(block: bytearray) -> Frame | None:
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
