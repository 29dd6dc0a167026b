"""Our requests in the words of OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.chat.output import append_schema_instructions, is_exact_schema
from tellback.chat.providers.media import decode_base64_text, get_inline_data, is_text_type
from tellback.chat.providers.openai.dialect import OpenAIDialect
from tellback.tools import Tool
from tellback.types import Message, MessagePart, ToolCall, message_text, render_part
from tellback.types.jsontext import dump_json

META_KEY = "openai"
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}


def encode(model: str, request: ChatRequest, dialect: OpenAIDialect) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of `chat.completions.create`, and what else goes into the body as it is."""
    extra = dict(request.config)
    system = request.system
    if request.output_schema is not None and not dialect.json_schema:
        system = append_schema_instructions(system, request.output_schema)
    messages = [{"role": "system", "content": system}] if system else []
    messages.extend(_encode_message(message, dialect) for message in request.messages)
    body: dict[str, Any] = {"model": model, "messages": messages}
    if request.max_output_tokens is not None:
        body[dialect.max_tokens_field] = request.max_output_tokens
    if request.tools:
        body["tools"] = [_encode_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = _encode_tool_choice(request.tool_choice)
    if request.output_schema is not None and dialect.json_schema:
        schema, strict = to_strict_schema(request.output_schema)
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": strict},
        }
    return body, extra


def _encode_message(message: Message, dialect: OpenAIDialect) -> dict[str, Any]:
    if message.role == "assistant":
        return _encode_assistant(message, dialect)
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message_text(message)}
    if message.role == "system" or not message.parts:
        return {"role": message.role, "content": message_text(message)}
    return {"role": message.role, "content": [_encode_part(part, dialect) for part in message.parts]}


def _encode_assistant(message: Message, dialect: OpenAIDialect) -> dict[str, Any]:
    text = message_text(message)
    encoded: dict[str, Any] = {"role": "assistant", "content": text or (None if message.tool_calls else "")}
    if message.tool_calls:
        encoded["tool_calls"] = [_encode_call(call, dialect) for call in message.tool_calls]
    details = ((message.meta or {}).get(META_KEY) or {}).get("reasoning_details")
    if details and dialect.reasoning_details:
        encoded["reasoning_details"] = details
    return encoded


def _encode_call(call: ToolCall, dialect: OpenAIDialect) -> dict[str, Any]:
    # Fields a host added to the call (Gemini's signatures travel so) go back with it.
    extras = (call.meta or {}).get(META_KEY) or {} if dialect.call_extras else {}
    return {
        **extras,
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": dump_json(call.input)},
    }


def _encode_part(part: MessagePart, dialect: OpenAIDialect) -> dict[str, Any]:
    encoded = _encode_media(part)
    if encoded is None:
        encoded = {"type": "text", "text": render_part(part)}
    if dialect.cache_control and part.meta and "cache_control" in part.meta:
        encoded["cache_control"] = part.meta["cache_control"]
    return encoded


def _encode_media(part: MessagePart) -> dict[str, Any] | None:
    """An image, audio or file part, or None for what the API does not take."""
    mime, data = get_inline_data(part)
    if part.kind == "image" and (part.url or data):
        image = {"url": f"data:{mime or 'image/png'};base64,{data}" if data else part.url}
        if part.meta and "detail" in part.meta:
            image["detail"] = part.meta["detail"]
        return {"type": "image_url", "image_url": image}
    if part.kind == "audio" and data:
        format = _AUDIO_FORMATS.get(mime or "", (mime or "audio/wav").partition("/")[2])
        return {"type": "input_audio", "input_audio": {"data": data, "format": format}}
    if part.kind == "file" and data:
        if is_text_type(mime):
            title = f"{part.name}:\n" if part.name else ""
            return {"type": "text", "text": title + decode_base64_text(data)}
        address = f"data:{mime or 'application/octet-stream'};base64,{data}"
        file = {"filename": part.name or "file", "file_data": address}
        return {"type": "file", "file": file}
    return None


def _encode_tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
    }


def _encode_tool_choice(choice: str) -> Any:
    if choice == "any":
        return "required"
    return choice if choice in ("auto", "none", "required") else {"type": "function", "function": {"name": choice}}


def to_strict_schema(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The schema with objects closed, and whether strict mode takes it: exact, and every property required."""
    strict = is_exact_schema(schema)

    def close(node: Any) -> Any:
        nonlocal strict
        if isinstance(node, Sequence) and not isinstance(node, str):
            return [close(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        closed = {name: close(value) for name, value in node.items() if name not in ("properties", "discriminator")}
        if "oneOf" in closed:
            closed["anyOf"] = closed.pop("oneOf")
        if "properties" in node:
            closed["properties"] = {name: close(value) for name, value in node["properties"].items()}
            closed.setdefault("additionalProperties", False)
            strict &= set(node.get("required", ())) == set(node["properties"])
        strict &= "default" not in node and ("$ref" not in node or len(node) == 1)
        return closed

    return close(schema), strict
