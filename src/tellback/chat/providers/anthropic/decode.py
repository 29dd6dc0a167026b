"""Anthropic's replies, whole or streamed, in our values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.providers.anthropic.state import blocks_to_meta
from tellback.chat.providers.failures import (
    error_from_status,
    parse_error_body,
    status_from_error,
    unreadable_response_error,
)
from tellback.chat.providers.stainless import as_dict
from tellback.chat.usage import make_usage
from tellback.types import (
    ChatReply,
    ToolCall,
)
from tellback.types.jsontext import parse_arguments


def decode(message: Any, provider: str, model: str) -> ChatReply:
    """A whole `Message`."""
    if getattr(message, "type", None) == "error":
        body = as_dict(message)
        text, error_type, code = parse_error_body(body)
        raise error_from_status(
            provider, model, status_from_error(error_type, code), text or "it reported an error", body=body
        )
    if not hasattr(message, "content"):
        raise unreadable_response_error(provider, model, f"{message!r:.200}")
    blocks = [as_dict(block) for block in message.content or ()]
    usage = as_dict(message.usage) if message.usage is not None else None
    return build_reply(blocks, message.stop_reason, usage, message, provider, message.model or model, {})


def build_reply(
    blocks: Sequence[dict[str, Any]],
    stop_reason: str | None,
    usage: Mapping[str, Any] | None,
    raw: Any,
    provider: str,
    model: str,
    inputs: Mapping[int, str],
) -> ChatReply:
    """The reply that blocks add up to; `inputs` holds the streamed arguments of calls, by the block\'s identity."""
    calls = []
    for block in blocks:
        invalid = None
        if id(block) in inputs:
            block["input"], invalid = parse_arguments(inputs[id(block)])
        if block.get("type") == "tool_use":
            ensure_call_id_and_name(block)
            calls.append(ToolCall(block["id"], block["name"], block.get("input") or {}, invalid))
    return ChatReply(
        text="".join(block.get("text") or "" for block in blocks if block.get("type") == "text"),
        tool_calls=tuple(calls),
        stop_reason=stop_reason or ("tool_use" if calls else "end_turn"),
        usage=make_usage(usage, provider, model) if usage else None,
        raw=raw,
        thinking="".join(block.get("thinking") or "" for block in blocks if block.get("type") == "thinking"),
        meta=blocks_to_meta(blocks),
    )


def ensure_call_id_and_name(block: dict[str, Any]) -> None:
    """See to it that a call has an id and a name."""
    block["id"] = block.get("id") or f"toolu_{uuid.uuid4().hex[:24]}"
    block["name"] = block.get("name") or ""
