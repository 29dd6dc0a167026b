"""Anthropic's streamed events as deltas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from recollect.chat.providers.anthropic.decode import make_reply, name_call
from recollect.chat.providers.stainless import as_dict
from recollect.types import (
    ReplyDelta,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)


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
                name_call(block)
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
            reply = make_reply(ordered, stop_reason, usage, raw, provider, head.get("model") or model, texts)
            yield StreamStop(reply.stop_reason, reply.usage, reply)


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
