"""Our requests in the words of Gemini's `generateContent`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.chat.output import append_schema_instructions
from tellback.chat.providers.gemini.state import parts_from_meta
from tellback.chat.providers.media import HISTORY_OMITTED, decode_base64, get_inline_data, split_system_messages
from tellback.tools import Tool
from tellback.types import Message, MessagePart, message_text, render_part

PLACEHOLDER_SIGNATURE = b"skip_thought_signature_validator"
"""Google's own placeholder for a call that a model of Gemini 3 or later did not make itself."""

_DEFAULT_MIMES = {"image": "image/png", "audio": "audio/mpeg", "file": "application/octet-stream"}


def encode(model: str, request: ChatRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The contents and the config of `generate_content`."""
    config: dict[str, Any] = dict(request.config)
    system, messages = split_system_messages(request.system, request.messages)
    if request.max_output_tokens is not None:
        config["max_output_tokens"] = request.max_output_tokens
    if request.tools:
        config["tools"] = [
            *config.get("tools", ()),
            {"function_declarations": [_encode_tool(tool) for tool in request.tools]},
        ]
        if request.tool_choice is not None:
            config["tool_config"] = {"function_calling_config": _encode_tool_choice(request.tool_choice)}
    if request.output_schema is not None:
        if request.tools and not is_gemini_3_or_later(model):
            # Older models refuse a schema beside tools.
            system = append_schema_instructions(system, request.output_schema)
        else:
            config["response_mime_type"] = "application/json"
            config["response_json_schema"] = dict(request.output_schema)
    if system:
        config["system_instruction"] = system
    config["automatic_function_calling"] = {"disable": True}
    return encode_messages(messages, model), config


def encode_messages(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Contents of alternating roles; the results of one reply's calls share one content."""
    names: dict[str, str] = {}
    wire_ids: set[str] = set()
    signature = PLACEHOLDER_SIGNATURE if is_gemini_3_or_later(model) else None
    contents: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            names.update((call.id, call.name) for call in message.tool_calls)
            stored_parts = parts_from_meta(message)
            if stored_parts is None:
                parts = _encode_model_parts(message, signature)
            else:
                parts = stored_parts
                wire_ids.update(p["function_call"].get("id") for p in stored_parts if p.get("function_call"))
            role = "model"
        elif message.role == "tool":
            parts, role = [_encode_result(message, names, wire_ids)], "user"
        else:
            parts, role = _encode_user_parts(message), "user"
        if not parts:
            continue
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": HISTORY_OMITTED}]})
    return contents


def is_gemini_3_or_later(model: str) -> bool:
    """Whether the model is of Gemini 3 or later, which check signatures and take a schema beside tools."""
    found = re.search(r"gemini-(\d+)", model)
    return found is not None and int(found.group(1)) >= 3


def _encode_model_parts(message: Message, signature: bytes | None) -> list[dict[str, Any]]:
    text = message_text(message)
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    for call in message.tool_calls:
        part: dict[str, Any] = {"function_call": {"name": call.name, "args": dict(call.input)}}
        if signature is not None:
            part["thought_signature"] = signature
        parts.append(part)
    return parts


def _encode_result(message: Message, names: Mapping[str, str], wire_ids: set[str]) -> dict[str, Any]:
    id = message.tool_call_id or ""
    content = message_text(message)
    response: dict[str, Any] = {
        "name": message.name or names.get(id, "unknown"),
        "response": {"error": content} if message.is_error else {"result": content},
    }
    if id in wire_ids:  # ids we made up ourselves mean nothing to Gemini
        response["id"] = id
    return {"function_response": response}


def _encode_user_parts(message: Message) -> list[dict[str, Any]]:
    if message.parts:
        return [_encode_part(part) for part in message.parts]
    text = message_text(message)
    return [{"text": text}] if text else []


def _encode_part(part: MessagePart) -> dict[str, Any]:
    mime, data = get_inline_data(part)
    if part.kind in _DEFAULT_MIMES and data:
        blob = {"mime_type": mime or _DEFAULT_MIMES[part.kind], "data": decode_base64(data)}
        return {"inline_data": blob}
    if part.kind in _DEFAULT_MIMES and part.url:
        return {"file_data": {"file_uri": part.url, "mime_type": mime or _DEFAULT_MIMES[part.kind]}}
    return {"text": render_part(part)}


def _encode_tool(tool: Tool) -> dict[str, Any]:
    declaration: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.parameters.get("properties"):
        declaration["parameters_json_schema"] = dict(tool.parameters)
    return declaration


def _encode_tool_choice(choice: str) -> dict[str, Any]:
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY", "any": "ANY"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowed_function_names": [choice]}
