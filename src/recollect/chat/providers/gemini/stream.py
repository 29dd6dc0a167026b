"""Gemini's streamed responses as deltas."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

from recollect.chat.providers.gemini.decode import Collected
from recollect.types import ReplyDelta, StreamStop

log = logging.getLogger("recollect.chat")


async def decode_stream(responses: AsyncIterator[Any], provider: str, model: str) -> AsyncIterator[ReplyDelta]:
    """A stream's responses as deltas. Ends without a `StreamStop` if the stream broke off before a finish reason."""
    collected = Collected(provider, model)
    try:
        async for response in responses:
            for delta in collected.add(response):
                yield delta
    except Exception as error:
        if not collected.complete:
            raise
        log.debug("%s failed after the end of its reply", model, exc_info=error)
    if collected.complete:
        reply = collected.reply(raw={"finish_reason": collected.finish, "block_reason": collected.blocked})
        yield StreamStop(reply.stop_reason, reply.usage, reply)
