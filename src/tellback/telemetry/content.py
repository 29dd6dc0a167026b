"""What was said, as the JSON text that OpenTelemetry's conventions describe. Used only where content is captured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tellback.types import ChatReply, Message, MessagePart, ToolCall, message_text
from tellback.types.jsontext import dump_json


def messages_json(messages: Iterable[Message]) -> str:
    """A history.

    >>> messages_json([Message("user", "Hi")])
    '[{"role":"user","parts":[{"type":"text","content":"Hi"}]}]'
    """
    return dump_json([{"role": message.role, "parts": _message_parts(message)} for message in messages])


def reply_json(reply: ChatReply) -> str:
    """A model's reply."""
    parts = [{"type": "reasoning", "content": reply.thinking}] if reply.thinking else []
    parts += _message_parts(reply.message)
    return dump_json([{"role": "assistant", "parts": parts, "finish_reason": reply.stop_reason}])


def text_json(text: str) -> str:
    """A text that belongs to no message, such as the system prompt."""
    return dump_json([_text_part(text)])


def arguments_json(call: ToolCall) -> str:
    """What a tool is called with."""
    return dump_json(_call_arguments(call))


def _message_parts(message: Message) -> list[dict[str, Any]]:
    text = message_text(message)
    if message.role == "tool":
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": text}]
    parts = [_content_part(part) for part in message.parts or ()]
    if text and message.parts is None:
        parts.append(_text_part(text))
    return parts + [_call_part(call) for call in message.tool_calls]


def _content_part(part: MessagePart) -> dict[str, Any]:
    """A part; of pictures, sounds and files only what they are, since spans are no place for megabytes."""
    if part.kind == "text":
        return _text_part(part.text or "")
    return {"type": part.kind, "mime_type": part.mime}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call_part(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _call_arguments(call)}


def _call_arguments(call: ToolCall) -> Any:
    return call.input if call.invalid_input is None else call.invalid_input
