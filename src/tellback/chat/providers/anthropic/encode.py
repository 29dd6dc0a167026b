"""Our requests in the words of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.chat.output import append_schema_instructions, is_exact_schema
from tellback.chat.providers.anthropic.state import blocks_from_meta
from tellback.chat.providers.media import (
    HISTORY_OMITTED,
    decode_base64_text,
    get_inline_data,
    is_text_type,
    split_system_messages,
)
from tellback.tools import Tool
from tellback.types import Message, MessagePart, ToolCall, message_text, render_part


def encode(
    model: str, request: ChatRequest, *, default_max_tokens: int, cache: bool | str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of `messages.create`, and what else goes into the body as it is."""
    config = dict(request.config)
    system, messages = split_system_messages(request.system, request.messages)
    limit = config.pop("max_tokens", default_max_tokens)
    if request.max_output_tokens is not None:
        limit = request.max_output_tokens
    body: dict[str, Any] = {"model": model, "max_tokens": limit, "messages": encode_messages(messages)}
    if request.output_schema is not None and not is_exact_schema(request.output_schema):
        # Held to such a schema, Claude could only give empty objects.
        system = append_schema_instructions(system, request.output_schema)
    marker = _cache_marker(cache)
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": marker}] if marker else system
    if marker:
        body["cache_control"] = marker
    tools = [_encode_tool(tool) for tool in request.tools]
    choice = _encode_tool_choice(request.tool_choice)
    if not tools:
        # A history with tool calls is refused without tools; these name them and may not be called.
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in _called_tool_names(messages)]
        choice = {"type": "none"} if tools else None
    if tools:
        body["tools"] = tools
    if choice is not None:
        body["tool_choice"] = choice
    if request.output_schema is not None and is_exact_schema(request.output_schema):
        from anthropic import transform_schema

        format = {"type": "json_schema", "schema": transform_schema(dict(request.output_schema))}
        body["output_config"] = {**config.pop("output_config", {}), "format": format}
    return body, config


def encode_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages of alternating roles: results and what the user says next share one message, results first."""
    encoded: list[dict[str, Any]] = []
    for message in messages:
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _assistant_blocks(message) if role == "assistant" else _user_blocks(message)
        if not blocks:
            continue
        if encoded and encoded[-1]["role"] == role:
            encoded[-1]["content"].extend(blocks)
        else:
            encoded.append({"role": role, "content": blocks})
    if not encoded or encoded[0]["role"] != "user":
        encoded.insert(0, {"role": "user", "content": [{"type": "text", "text": HISTORY_OMITTED}]})
    return encoded


def _assistant_blocks(message: Message) -> list[dict[str, Any]]:
    stored_blocks = blocks_from_meta(message)
    if stored_blocks is not None:
        return stored_blocks
    blocks = [_text_block(message_text(message))] if message_text(message).strip() else []
    return blocks + [_encode_tool_use(call) for call in message.tool_calls]


def _user_blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_encode_tool_result(message)]
    return _content_blocks(message)


def _content_blocks(message: Message) -> list[dict[str, Any]]:
    if message.parts:
        return [block for block in map(_encode_part, message.parts) if block is not None]
    text = message_text(message)
    return [_text_block(text)] if text.strip() else []


def _encode_tool_result(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": message.tool_call_id or ""}
    content: Any = _content_blocks(message) if message.parts else message_text(message)
    if content:
        result["content"] = content
    if message.is_error:
        result["is_error"] = True
    return result


def _encode_tool_use(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.input)}


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _encode_part(part: MessagePart) -> dict[str, Any] | None:
    block = _encode_media(part)
    if block is None:
        text = render_part(part)
        if not text.strip():
            return None
        block = _text_block(text)
    if part.meta and "cache_control" in part.meta:
        block["cache_control"] = part.meta["cache_control"]
    return block


def _encode_media(part: MessagePart) -> dict[str, Any] | None:
    """An image or document block, or None for what Anthropic does not take (audio, other files)."""
    mime, data = get_inline_data(part)
    if part.kind == "image":
        if data:
            source = {"type": "base64", "media_type": mime or "image/png", "data": data}
        elif part.url:
            source = {"type": "url", "url": part.url}
        else:
            return None
        return {"type": "image", "source": source}
    if part.kind != "file":
        return None
    if data and mime == "application/pdf":
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
    elif data and is_text_type(mime):
        source = {"type": "text", "media_type": "text/plain", "data": decode_base64_text(data)}
    elif part.url and not data and (mime == "application/pdf" or part.url.lower().endswith(".pdf")):
        source = {"type": "url", "url": part.url}
    else:
        return None
    document: dict[str, Any] = {"type": "document", "source": source}
    if part.name:
        document["title"] = part.name
    return document


def _encode_tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _encode_tool_choice(choice: str | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    choice_types = {"auto": "auto", "required": "any", "any": "any", "none": "none"}
    return {"type": choice_types[choice]} if choice in choice_types else {"type": "tool", "name": choice}


def _called_tool_names(messages: Iterable[Message]) -> list[str]:
    return list(dict.fromkeys(call.name for message in messages for call in message.tool_calls))


def _cache_marker(cache: bool | str) -> Mapping[str, Any] | None:
    if not cache:
        return None
    return {"type": "ephemeral"} if cache is True else {"type": "ephemeral", "ttl": cache}
