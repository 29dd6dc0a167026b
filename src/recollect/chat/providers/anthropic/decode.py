"""Anthropic's replies, whole or streamed, in our values."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from recollect.chat.providers.anthropic.state import keep_blocks
from recollect.chat.providers.failures import error_fields, status_failure, status_of
from recollect.chat.providers.stainless import as_dict
from recollect.chat.usage import make_usage
from recollect.types import (
    ChatReply,
    ReplyDelta,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from recollect.types.jsontext import parse_arguments


def decode(message: Any, provider: str, model: str) -> ChatReply:
    """A whole `Message`."""
    if getattr(message, "type", None) == "error":
        body = as_dict(message)
        text, kind, code = error_fields(body)
        raise status_failure(provider, model, status_of(kind, code), text or "it reported an error", body=body)
    blocks = [as_dict(block) for block in message.content or ()]
    usage = as_dict(message.usage) if message.usage is not None else None
    return _reply(blocks, message.stop_reason, usage, message, provider, message.model or model, {})


async def decode_stream(events: AsyncIterator[Any], provider: str, model: str) -> AsyncIterator[ReplyDelta]:
    """A stream's events as deltas. Ends without a `StreamStop` if the stream broke off before `message_stop`."""
    blocks: dict[int, dict[str, Any]] = {}
    inputs: dict[int, list[str]] = {}
    usage: dict[str, Any] = {}
    head: dict[str, Any] = {}
    stop_reason: str | None = None
    async for event in events:
        kind = getattr(event, "type", None)
        if kind == "content_block_delta":
            block = blocks.setdefault(event.index, {})
            delta = event.delta
            delta_kind = getattr(delta, "type", None)
            if delta_kind == "text_delta":
                if delta.text:
                    block["text"] = (block.get("text") or "") + delta.text
                    yield TextDelta(delta.text)
            elif delta_kind == "input_json_delta":
                inputs.setdefault(event.index, []).append(delta.partial_json or "")
                if block.get("type") == "tool_use" and delta.partial_json:
                    yield ToolUseInputDelta(block["id"], delta.partial_json)
            elif delta_kind == "thinking_delta":
                block["thinking"] = (block.get("thinking") or "") + (delta.thinking or "")
                if delta.thinking:
                    yield ThinkingDelta(delta.thinking)
            else:
                _merge(block, as_dict(delta))
        elif kind == "content_block_start":
            block = blocks[event.index] = as_dict(event.content_block)
            if block.get("type") == "tool_use":
                _name_call(block)
                yield ToolUseStart(block["id"], block["name"])
            elif block.get("type") == "text" and block.get("text"):
                yield TextDelta(block["text"])
        elif kind == "content_block_stop":
            block = blocks.get(event.index, {})
            if block.get("type") == "tool_use":
                yield ToolUseEnd(block["id"])
        elif kind == "message_start":
            head = {"id": event.message.id, "model": event.message.model}
            if getattr(event.message, "usage", None) is not None:
                usage.update(_given(as_dict(event.message.usage)))
        elif kind == "message_delta":
            stop_reason = event.delta.stop_reason or stop_reason
            if getattr(event, "usage", None) is not None:
                usage.update(_given(as_dict(event.usage)))
        elif kind == "message_stop":
            ordered = [blocks[index] for index in sorted(blocks)]
            texts = {id(blocks[index]): "".join(pieces) for index, pieces in inputs.items() if index in blocks}
            raw = {**head, "stop_reason": stop_reason, "content": ordered, "usage": usage}
            reply = _reply(ordered, stop_reason, usage, raw, provider, head.get("model") or model, texts)
            yield StreamStop(reply.stop_reason, reply.usage, reply)


def _reply(
    blocks: Sequence[dict[str, Any]],
    stop_reason: str | None,
    usage: Mapping[str, Any] | None,
    raw: Any,
    provider: str,
    model: str,
    inputs: Mapping[int, str],
) -> ChatReply:
    calls = []
    for block in blocks:
        invalid = None
        if id(block) in inputs:
            block["input"], invalid = parse_arguments(inputs[id(block)])
        if block.get("type") == "tool_use":
            _name_call(block)
            calls.append(ToolCall(block["id"], block["name"], block.get("input") or {}, invalid))
    return ChatReply(
        text="".join(block.get("text") or "" for block in blocks if block.get("type") == "text"),
        tool_calls=tuple(calls),
        stop_reason=stop_reason or ("tool_use" if calls else "end_turn"),
        usage=make_usage(usage, provider, model) if usage else None,
        raw=raw,
        thinking="".join(block.get("thinking") or "" for block in blocks if block.get("type") == "thinking"),
        meta=keep_blocks(blocks),
    )


def _name_call(block: dict[str, Any]) -> None:
    block["id"] = block.get("id") or f"toolu_{uuid.uuid4().hex[:24]}"
    block["name"] = block.get("name") or ""


def _merge(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Deltas of kinds we do not read ourselves (signatures, citations, compaction): collected, to be sent back."""
    for name, value in delta.items():
        if name == "type":
            continue
        if name == "citation":
            block.setdefault("citations", None)
            block["citations"] = [*(block["citations"] or ()), value]
        elif isinstance(value, str) and isinstance(block.get(name), str):
            block[name] += value
        elif value is not None:
            block[name] = value


def _given(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in usage.items() if value is not None}
