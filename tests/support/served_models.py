"""A model for servers in separate processes: `tellback serve --agents tests.support.served_models:install`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from tellback import Tellback
from tellback.chat.model import ChatRequest
from tellback.testing import FunctionModel
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta

TIMINGS_VARIABLE = "TELLBACK_TEST_TIMINGS"
"""The environment variable with a folder to which each model call writes its start and end times."""

PART_SECONDS = 0.25
CLOSING_SECONDS = 2.0


async def _parts(request: ChatRequest) -> AsyncIterator[str]:
    """Yield as many words as the last message requests, slowly."""
    text = str(request.messages[-1].content)
    count = int("".join(filter(str.isdigit, text[-3:])) or 1)
    started_at = time.time()
    for number in range(count):
        yield f"word{number} "
        await asyncio.sleep(PART_SECONDS)
    if folder := os.environ.get(TIMINGS_VARIABLE):
        name = f"{os.getpid()}-{time.time_ns()}"
        (Path(folder) / name).write_text(f"{started_at} {time.time()} {os.getpid()}")


async def _complete(request: ChatRequest) -> str:
    return "".join([part async for part in _parts(request)])


async def _stream(request: ChatRequest) -> AsyncIterator[ReplyDelta]:
    text = ""
    async for part in _parts(request):
        text += part
        yield TextDelta(part)
    yield StreamStop("end_turn", reply=ChatReply(text))


def install(tb: Tellback) -> None:
    """Use this model."""
    tb._runtime.model = FunctionModel(_complete, stream_fn=_stream)


def slow_to_close(tb: Tellback) -> None:
    """Use this model, and close the store slowly."""
    install(tb)
    close = tb.close

    async def slowly() -> None:
        await asyncio.sleep(CLOSING_SECONDS)
        await close()

    tb.close = slowly  # type: ignore[method-assign]
