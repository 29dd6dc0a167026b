"""A completion as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tellback.background import stopped
from tellback.server.disconnects import while_awaited
from tellback.server.openai.completing import Completion
from tellback.server.openai.errors import error_body
from tellback.server.openai.writing import Writer
from tellback.server.problems import problem_for
from tellback.server.settings import ServerSettings
from tellback.server.sse import EventStream, frame
from tellback.turn.values import TurnResult
from tellback.types import TextDelta

CONVERSATION_HEADER = "X-Tellback-Conversation"


async def streamed(request: Request, completion: Completion, writer: Writer, settings: ServerSettings) -> Response:
    """The answer as it comes. What fails before its first piece is raised, unless that piece is slow to come."""
    items = completion.stream()
    first = asyncio.ensure_future(anext(items))
    frames = _frames(first, items, writer)
    await anext(frames)  # it has begun: closing it, wherever that happens, ends the turn
    try:
        await while_awaited(request, _begun(first, settings.heartbeat_seconds))
    except BaseException:
        await frames.aclose()
        raise
    return EventStream(frames, settings, headers=conversation_header(completion), retry=None, on_error=error_frame)


def conversation_header(completion: Completion) -> dict[str, str]:
    """The header that says which conversation it is, for the next request."""
    return {} if completion.conversation_id is None else {CONVERSATION_HEADER: completion.conversation_id}


def error_frame(error: Exception, request_id: str | None) -> bytes:
    """The last frame of a stream that failed, as OpenAI's clients look for it."""
    told = json.loads(bytes(problem_for(error, request_id).body))
    return frame(None, json.dumps(error_body(told)[1]).encode())


async def _begun(first: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait({first}, timeout=seconds)
    if first.done():
        first.result()


async def _frames(
    first: asyncio.Future[Any], items: AsyncGenerator[Any, None], writer: Writer
) -> AsyncGenerator[bytes, None]:
    async with aclosing(items):
        try:
            yield b""
            item = await first
        finally:
            await stopped(first)  # as long as it waits for an item, the items cannot be closed
        yield _frame(writer.opening())
        while True:
            if isinstance(item, TextDelta):
                yield _frame(writer.text(item.text))
            elif isinstance(item, TurnResult):
                for chunk in writer.ending(item):
                    yield _frame(chunk)
                return
            item = await anext(items)


def _frame(chunk: str) -> bytes:
    return frame(None, chunk.encode())
