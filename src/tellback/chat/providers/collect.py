"""A vendor's stream as deltas: the same way for all, once a vendor says what each of its events means."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from tellback.types import ChatReply, ReplyDelta, StreamStop

log = logging.getLogger("tellback.chat")


class StreamReader(Protocol):
    """What the events of one call have given so far."""

    @property
    def is_complete(self) -> bool:
        """Whether the reply is whole: what is missing after that (a closing mark, usage) does not spoil it."""

    @property
    def is_finished(self) -> bool:
        """Whether the vendor said that nothing follows."""

    def add(self, event: Any) -> Iterator[ReplyDelta]:
        """Take one event, and give its deltas."""

    def close(self) -> Iterator[ReplyDelta]:
        """What is left to give when no event follows."""

    def reply(self) -> ChatReply:
        """The whole reply."""


async def read_stream(events: AsyncIterator[Any], reader: StreamReader, model: str) -> AsyncIterator[ReplyDelta]:
    """The deltas of a stream, a `StreamStop` with the whole reply last. Ends without one if the stream broke off."""
    has_stopped = False
    try:
        async for event in events:
            for delta in reader.add(event):
                yield delta
            if reader.is_finished and not has_stopped:
                has_stopped = True
                yield _build_stop(reader)
    except Exception as error:
        if not reader.is_complete:
            raise
        log.debug("%s failed after the end of its reply", model, exc_info=error)
    if has_stopped:
        return
    for delta in reader.close():
        yield delta
    if reader.is_complete:
        yield _build_stop(reader)


def _build_stop(reader: StreamReader) -> StreamStop:
    reply = reader.reply()
    return StreamStop(reply.stop_reason, reply.usage, reply)
