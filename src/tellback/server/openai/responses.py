"""Encode completions in OpenAI's format, whole or as a stream of chunks."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tellback.concurrency import cancel_and_wait
from tellback.server.lifecycle import cancel_on_disconnect
from tellback.server.openai.completion import Completion
from tellback.server.openai.errors import encode_error
from tellback.server.problems import any_error_response
from tellback.server.settings import ServerSettings
from tellback.server.streaming.sse import EventStream, encode_frame
from tellback.types import ChatUsage, TextDelta, ToolCall
from tellback.types.conversations import TurnResult
from tellback.types.ids import new_id
from tellback.types.jsontext import dump_json

DONE_MARKER = "[DONE]"

_FINISH_REASONS = {"truncated": "length", "approval": "tool_calls"}

CONVERSATION_HEADER = "X-Tellback-Conversation"


@dataclass(frozen=True, slots=True)
class CompletionWriter:
    """Encodes one completion. `model` is the model's name, unless the provider reports another."""

    model: str
    with_usage: bool = False
    id: str = field(default_factory=lambda: new_id("chatcmpl").replace("_", "-", 1))
    created: int = field(default_factory=lambda: int(time.time()))

    def encode_completion(self, result: TurnResult) -> dict[str, Any]:
        calls = [_encode_tool_call(call) for call in result.pending]
        message: dict[str, Any] = {"role": "assistant", "content": result.text or None if calls else result.text}
        message["refusal"] = None
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(result)}
        return {
            **self._common_fields("chat.completion", result.usage.model),
            "choices": [choice],
            "usage": encode_usage(result.usage),
        }

    def first_chunk(self) -> str:
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def text_chunk(self, text: str) -> str:
        return self._chunk({"content": text})

    def last_chunks(self, result: TurnResult) -> list[str]:
        """Encode the last chunks: tool calls, finish reason and usage."""
        chunks = [
            self._chunk({"tool_calls": [{"index": number, **_encode_tool_call(call)}]})
            for number, call in enumerate(result.pending)
        ]
        chunks.append(self._chunk({}, finish_reason(result)))
        if self.with_usage:
            head = self._common_fields("chat.completion.chunk")
            chunks.append(json.dumps({**head, "choices": [], "usage": encode_usage(result.usage)}))
        return [*chunks, DONE_MARKER]

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self.with_usage else {}
        return json.dumps({**self._common_fields("chat.completion.chunk"), "choices": [choice], **usage})

    def _common_fields(self, object: str, model: str | None = None) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": model or self.model,
            "system_fingerprint": None,
        }


def finish_reason(result: TurnResult) -> str:
    """Return OpenAI's finish reason."""
    last = next((each.stop_reason for each in reversed(result.messages) if each.role == "assistant"), None)
    if last == "refusal" and not result.pending:
        return "content_filter"
    return _FINISH_REASONS.get(result.status, "stop")


def encode_usage(usage: ChatUsage) -> dict[str, Any] | None:
    """Encode the token usage, if the provider reports it."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    prompt_tokens, completion_tokens = usage.input_tokens or 0, usage.output_tokens or 0
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens if usage.total_tokens is None else usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
    }


def _encode_tool_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dump_json(call.input)}
    return {"id": call.id, "type": "function", "function": function}


async def stream_completion(
    request: Request, completion: Completion, writer: CompletionWriter, settings: ServerSettings
) -> Response:
    """Stream the answer. Errors before the first piece are raised, unless that piece takes longer than a heartbeat."""
    items = completion.stream()
    first = asyncio.ensure_future(anext(items))
    frames = _encode_frames(first, items, writer)
    await anext(frames)  # the generator is now running, so closing it ends the turn
    try:
        await cancel_on_disconnect(request, asyncio.wait({first}, timeout=settings.heartbeat_seconds))
        if first.done():
            first.result()
    except BaseException:
        await frames.aclose()
        raise
    return EventStream(
        frames, settings, headers=conversation_header(completion), retry=None, on_error=encode_error_frame
    )


def conversation_header(completion: Completion) -> dict[str, str]:
    """Return the header with the conversation id, for the client's next request."""
    return {} if completion.conversation_id is None else {CONVERSATION_HEADER: completion.conversation_id}


def encode_error_frame(error: Exception, request_id: str | None) -> bytes:
    """Encode the last frame of a failed stream in OpenAI's format."""
    problem = json.loads(bytes(any_error_response(error, request_id).body))
    return encode_frame(None, json.dumps(encode_error(problem)[1]).encode())


async def _encode_frames(
    first: asyncio.Future[Any], items: AsyncGenerator[Any, None], writer: CompletionWriter
) -> AsyncGenerator[bytes, None]:
    async with aclosing(items):
        try:
            yield b""
            item = await first
        finally:
            await cancel_and_wait(first)  # `items` cannot be closed while `first` waits for an item
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
