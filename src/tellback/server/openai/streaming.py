"""A completion as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tellback.background import cancel_and_wait
from tellback.server.disconnects import cancel_on_disconnect
from tellback.server.openai.completing import Completion
from tellback.server.openai.errors import encode_error
from tellback.server.openai.writing import CompletionWriter
from tellback.server.problems import any_error_response
from tellback.server.settings import ServerSettings
from tellback.server.sse import EventStream, encode_frame
from tellback.turn.values import TurnResult
from tellback.types import TextDelta

CONVERSATION_HEADER = "X-Tellback-Conversation"


async def stream_completion(
    request: Request, completion: Completion, writer: CompletionWriter, settings: ServerSettings
) -> Response:
    """The answer as it comes. What fails before its first piece is raised, unless that piece is slow to come."""
    items = completion.stream()
    first = asyncio.ensure_future(anext(items))
    frames = _encode_frames(first, items, writer)
    await anext(frames)  # it has begun: closing it, wherever that happens, ends the turn
    try:
        await cancel_on_disconnect(request, _wait_for_first(first, settings.heartbeat_seconds))
    except BaseException:
        await frames.aclose()
        raise
    return EventStream(
        frames, settings, headers=conversation_header(completion), retry=None, on_error=encode_error_frame
    )


def conversation_header(completion: Completion) -> dict[str, str]:
    """The header that says which conversation it is, for the next request."""
    return {} if completion.conversation_id is None else {CONVERSATION_HEADER: completion.conversation_id}


def encode_error_frame(error: Exception, request_id: str | None) -> bytes:
    """The last frame of a stream that failed, as OpenAI's clients look for it."""
    problem = json.loads(bytes(any_error_response(error, request_id).body))
    return encode_frame(None, json.dumps(encode_error(problem)[1]).encode())


async def _wait_for_first(first: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait({first}, timeout=seconds)
    if first.done():
        first.result()


async def _encode_frames(
    first: asyncio.Future[Any], items: AsyncGenerator[Any, None], writer: CompletionWriter
) -> AsyncGenerator[bytes, None]:
    async with aclosing(items):
        try:
            yield b""
            item = await first
        finally:
            await cancel_and_wait(first)  # as long as it waits for an item, the items cannot be closed
        yield _encode_chunk(writer.first_chunk())
        while True:
            if isinstance(item, TextDelta):
                yield _encode_chunk(writer.text_chunk(item.text))
            elif isinstance(item, TurnResult):
                for chunk in writer.last_chunks(item):
                    yield _encode_chunk(chunk)
                return
            item = await anext(items)


def _encode_chunk(chunk: str) -> bytes:
    return encode_frame(None, chunk.encode())
