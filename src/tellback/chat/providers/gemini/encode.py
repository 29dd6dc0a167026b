"""Our requests in the words of Gemini's `generateContent`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.chat.output import with_schema_instructions
from tellback.chat.providers.gemini.state import kept_parts
from tellback.chat.providers.media import EARLIER, inline_data, raw_bytes, system_and_rest
from tellback.tools import Tool
from tellback.types import Message, MessagePart, message_text, render_part

NO_SIGNATURE = b"skip_thought_signature_validator"
"""Google's own placeholder for a call that a model of Gemini 3 or later did not make itself."""

_DEFAULT_MIMES = {"image": "image/png", "audio": "audio/mpeg", "file": "application/octet-stream"}


def encode(model: str, request: ChatRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The contents and the config of `generate_content`."""
    config: dict[str, Any] = dict(request.config)
    system, messages = system_and_rest(request.system, request.messages)
    if request.max_output_tokens is not None:
        config["max_output_tokens"] = request.max_output_tokens
    if request.tools:
        config["tools"] = [*config.get("tools", ()), {"function_declarations": [_tool(tool) for tool in request.tools]}]
        if request.tool_choice is not None:
            config["tool_config"] = {"function_calling_config": _tool_choice(request.tool_choice)}
    if request.output_schema is not None:
        if request.tools and not since_gemini_3(model):
            # Older models refuse a schema beside tools.
            system = with_schema_instructions(system, request.output_schema)
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
    signature = NO_SIGNATURE if since_gemini_3(model) else None
    contents: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            names.update((call.id, call.name) for call in message.tool_calls)
            kept = kept_parts(message)
            if kept is None:
                parts = _model_parts(message, signature)
            else:
                parts = kept
                wire_ids.update(p["function_call"].get("id") for p in kept if p.get("function_call"))
            role = "model"
        elif message.role == "tool":
            parts, role = [_result(message, names, wire_ids)], "user"
        else:
            parts, role = _user_parts(message), "user"
        if not parts:
            continue
        if contents and contents[-1]["role"] == role:
            contents[-1]["parts"].extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    if not contents or contents[0]["role"] != "user":
        contents.insert(0, {"role": "user", "parts": [{"text": EARLIER}]})
    return contents


def since_gemini_3(model: str) -> bool:
    """Whether the model is of Gemini 3 or later, which check signatures and take a schema beside tools."""
    found = re.search(r"gemini-(\d+)", model)
    return found is not None and int(found.group(1)) >= 3


def _model_parts(message: Message, signature: bytes | None) -> list[dict[str, Any]]:
    text = message_text(message)
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    for call in message.tool_calls:
        part: dict[str, Any] = {"function_call": {"name": call.name, "args": dict(call.input)}}
        if signature is not None:
            part["thought_signature"] = signature
        parts.append(part)
    return parts


def _result(message: Message, names: Mapping[str, str], wire_ids: set[str]) -> dict[str, Any]:
    id = message.tool_call_id or ""
    content = message_text(message)
    response: dict[str, Any] = {
        "name": message.name or names.get(id, "unknown"),
        "response": {"error": content} if message.is_error else {"result": content},
    }
    if id in wire_ids:  # ids we made up ourselves mean nothing to Gemini
        response["id"] = id
    return {"function_response": response}


def _user_parts(message: Message) -> list[dict[str, Any]]:
    if message.parts:
        return [_part(part) for part in message.parts]
    text = message_text(message)
    return [{"text": text}] if text else []


def _part(part: MessagePart) -> dict[str, Any]:
    mime, data = inline_data(part)
    if part.kind in _DEFAULT_MIMES and data:
        blob = {"mime_type": mime or _DEFAULT_MIMES[part.kind], "data": raw_bytes(data)}
        return {"inline_data": blob}
    if part.kind in _DEFAULT_MIMES and part.url:
        return {"file_data": {"file_uri": part.url, "mime_type": mime or _DEFAULT_MIMES[part.kind]}}
    return {"text": render_part(part)}


def _tool(tool: Tool) -> dict[str, Any]:
    declared: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.parameters.get("properties"):
        declared["parameters_json_schema"] = dict(tool.parameters)
    return declared


def _tool_choice(choice: str) -> dict[str, Any]:
    modes = {"auto": "AUTO", "none": "NONE", "required": "ANY", "any": "ANY"}
    if choice in modes:
        return {"mode": modes[choice]}
    return {"mode": "ANY", "allowed_function_names": [choice]}
