"""Our requests as chat completions of llama.cpp, for any chat template.

Small models cannot call tools by a format of their own. Where tools are offered, the answer is held to a schema
instead: `{"say": ...}` or `{"tool": ..., "input": ...}`. Templates differ in which roles they take, and in which order.
So a history is written as the one they all take: user and assistant in turns, a user first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.chat.output import append_schema_instructions
from tellback.chat.providers.local.schema import GUIDANCE, to_llama_schema
from tellback.chat.providers.media import (
    HISTORY_OMITTED,
    decode_base64_text,
    get_inline_data,
    is_text_type,
    split_system_messages,
)
from tellback.tools import Tool
from tellback.types import Message, MessagePart, ToolCall, message_text, render_part
from tellback.types.jsontext import dump_json

SAY, TOOL, INPUT = "say", "tool", "input"
DEFAULT_MAX_TOKENS = 1_024
"""How long an answer may get that nobody has set a cap for: a small model may never stop by itself."""


_CONTROL_TOKENS = re.compile(r"<(?=\|[^<>\s|]{1,40}\|>|/?(?:s|bos|eos|start_of_turn|end_of_turn)>)", re.IGNORECASE)


def encode(request: ChatRequest) -> dict[str, Any]:
    """The body of a streamed request, but for the schema, which `answer_schema` gives."""
    config = dict(request.config)
    max_tokens = config.pop("max_tokens", DEFAULT_MAX_TOKENS)
    if request.max_output_tokens is not None:
        max_tokens = request.max_output_tokens
    tools = offered_tools(request)
    system, messages = split_system_messages(request.system, request.messages)
    if tools:
        system = _join_paragraphs(system, _tool_instructions(request, tools))
    elif request.output_schema is not None:
        system = append_schema_instructions(system, request.output_schema)
    head = [{"role": "system", "content": _escape_control_tokens(system)}] if system else []
    return {
        **config,
        "messages": [*head, *_encode_messages(messages, as_answers=bool(tools))],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Word from within a long prompt: it can be given up there, and its silence is no timeout.
        "return_progress": True,
    }


def offered_tools(request: ChatRequest) -> tuple[Tool, ...]:
    """The tools that may be called: all, one, or none, as `tool_choice` says."""
    choice = request.tool_choice
    if choice == "none":
        return ()
    if choice in (None, "auto", "required", "any"):
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == choice)


def build_answer_schema(request: ChatRequest) -> dict[str, Any] | None:
    """What the answer is held to, or None where it is free text."""
    tools = offered_tools(request)
    if not tools:
        return None if request.output_schema is None else {**to_llama_schema(request.output_schema), **GUIDANCE}
    alternatives = []
    definitions: dict[str, Any] = {}
    if request.tool_choice in (None, "auto"):
        say_schema: dict[str, Any] = {"type": "string", "minLength": 1}
        if request.output_schema is not None:
            definitions[SAY] = to_llama_schema(request.output_schema, ref_prefix=f"/$defs/{SAY}")
            say_schema = {"$ref": f"#/$defs/{SAY}"}
        alternatives.append(_object_schema({SAY: say_schema}))
    for position, tool in enumerate(tools):
        definitions[str(position)] = {
            "type": "object",
            **to_llama_schema(tool.parameters, ref_prefix=f"/$defs/{position}"),
        }
        alternatives.append(_object_schema({TOOL: {"const": tool.name}, INPUT: {"$ref": f"#/$defs/{position}"}}))
    return {"anyOf": alternatives, "$defs": definitions, **GUIDANCE}


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _tool_instructions(request: ChatRequest, tools: Sequence[Tool]) -> str:
    call = '{"tool": "<name>", "input": {...}} to use a tool; you are told its result, and answer then'
    if request.tool_choice in (None, "auto"):
        answer = "JSON of the schema below" if request.output_schema is not None else '"<your answer>"'
        forms = f'Answer with one JSON object, and nothing else:\n- {{"say": {answer}}} to answer the user.\n- {call}.'
    else:
        forms = f"Use a tool now. Answer with one JSON object, and nothing else: {call}."
    listed = "\n".join(
        f"- {tool.name}: {' '.join(tool.description.split())} Its input: {dump_json(tool.parameters)}" for tool in tools
    )
    text = f"{forms}\n\nTools:\n{listed}"
    if request.output_schema is not None:
        text += f"\n\nThe schema of what you say:\n{dump_json(request.output_schema)}"
    return text


def _encode_messages(messages: Sequence[Message], *, as_answers: bool) -> list[dict[str, str]]:
    """User and assistant in turns: messages that follow each other from one side are one."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    encoded: list[dict[str, str]] = []
    for message in messages:
        if message.role == "assistant":
            role, text = "assistant", _encode_assistant(message, as_answers)
        elif message.role == "tool":
            role, text = "user", _encode_result(message, names)
        else:
            role, text = "user", _encode_content(message)
        if not text.strip():
            continue
        text = _escape_control_tokens(text)
        if encoded and encoded[-1]["role"] == role:
            encoded[-1]["content"] = _join_paragraphs(encoded[-1]["content"], text)
        else:
            encoded.append({"role": role, "content": text})
    if not encoded or encoded[0]["role"] != "user":
        encoded.insert(0, {"role": "user", "content": HISTORY_OMITTED})
    return encoded


def _encode_assistant(message: Message, as_answers: bool) -> str:
    """What the model said, in the form that it is to answer in now."""
    text = message_text(message)
    text_lines = [dump_json({SAY: text}) if as_answers else text] if text.strip() else []
    return "\n".join([*text_lines, *(_encode_call(call) for call in message.tool_calls)])


def _encode_call(call: ToolCall) -> str:
    return dump_json({TOOL: call.name, INPUT: call.input if call.invalid_input is None else call.invalid_input})


def _encode_result(message: Message, names: Mapping[str, str]) -> str:
    name = message.name or names.get(message.tool_call_id or "") or "a tool"
    return f"{'Error' if message.is_error else 'Result'} of {name}: {_encode_content(message) or '(nothing)'}"


def _encode_content(message: Message) -> str:
    if not message.parts:
        return message_text(message)
    return "\n\n".join(filter(None, map(_encode_part, message.parts)))


def _encode_part(part: MessagePart) -> str:
    mime, data = get_inline_data(part)
    if part.kind == "file" and data and is_text_type(mime):
        return (f"{part.name}:\n" if part.name else "") + decode_base64_text(data)
    return render_part(part)


def _escape_control_tokens(text: str) -> str:
    """The text, with no mark that ends a message: llama.cpp reads such marks in any text, also in what a user wrote."""
    return _CONTROL_TOKENS.sub("<\u200b", text)


def _join_paragraphs(before: str | None, text: str) -> str:
    return f"{before}\n\n{text}" if before else text
