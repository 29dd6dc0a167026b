"""A vendor's stream as deltas: the same way for all, once a vendor says what each of its events means."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from tellback.types import ChatReply, ReplyDelta, StreamStop

log = logging.getLogger("tellback.chat")


class Collected(Protocol):
    """What the events of one call have given so far."""

    @property
    def is_complete(self) -> bool:
        """Whether the reply is whole: what is missing after that (a closing mark, usage) does not spoil it."""

    @property
    def is_over(self) -> bool:
        """Whether the vendor said that nothing follows."""

    def add(self, event: Any) -> Iterator[ReplyDelta]:
        """Take one event, and give its deltas."""

    def close(self) -> Iterator[ReplyDelta]:
        """What is left to give when no event follows."""

    def reply(self) -> ChatReply:
        """The whole reply."""


async def collect(events: AsyncIterator[Any], collected: Collected, model: str) -> AsyncIterator[ReplyDelta]:
    """The deltas of a stream, a `StreamStop` with the whole reply last. Ends without one if the stream broke off."""
    stopped = False
    try:
        async for event in events:
            for delta in collected.add(event):
                yield delta
            if collected.is_over and not stopped:
                stopped = True
                yield _stop(collected)
    except Exception as error:
        if not collected.is_complete:
            raise
        log.debug("%s failed after the end of its reply", model, exc_info=error)
    if stopped:
        return
    for delta in collected.close():
        yield delta
    if collected.is_complete:
        yield _stop(collected)


def _stop(collected: Collected) -> StreamStop:
    reply = collected.reply()
    return StreamStop(reply.stop_reason, reply.usage, reply)
