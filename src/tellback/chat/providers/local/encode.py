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
from tellback.chat.output import with_schema_instructions
from tellback.chat.providers.local.schema import GUIDANCE, held_to
from tellback.chat.providers.media import EARLIER, decoded_text, inline_data, is_text, system_and_rest
from tellback.tools import Tool
from tellback.types import Message, MessagePart, ToolCall, message_text, render_part
from tellback.types.jsontext import dump_json

SAY, TOOL, INPUT = "say", "tool", "input"
MOST_TOKENS = 1_024
"""How long an answer may get that nobody has set a cap for: a small model may never stop by itself."""


_MARKS = re.compile(r"<(?=\|[^<>\s|]{1,40}\|>|/?(?:s|bos|eos|start_of_turn|end_of_turn)>)", re.IGNORECASE)


def encode(request: ChatRequest) -> dict[str, Any]:
    """The body of a streamed request, but for the schema, which `answer_schema` gives."""
    config = dict(request.config)
    most = config.pop("max_tokens", MOST_TOKENS)
    if request.max_output_tokens is not None:
        most = request.max_output_tokens
    tools = offered(request)
    system, rest = system_and_rest(request.system, request.messages)
    if tools:
        system = _joined(system, _instructions(request, tools))
    elif request.output_schema is not None:
        system = with_schema_instructions(system, request.output_schema)
    head = [{"role": "system", "content": _unmarked(system)}] if system else []
    return {
        **config,
        "messages": [*head, *_in_turns(rest, as_answers=bool(tools))],
        "max_tokens": most,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Word from within a long prompt: it can be given up there, and its silence is no timeout.
        "return_progress": True,
    }


def offered(request: ChatRequest) -> tuple[Tool, ...]:
    """The tools that may be called: all, one, or none, as `tool_choice` says."""
    choice = request.tool_choice
    if choice == "none":
        return ()
    if choice in (None, "auto", "required", "any"):
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == choice)


def answer_schema(request: ChatRequest) -> dict[str, Any] | None:
    """What the answer is held to, or None where it is free text."""
    tools = offered(request)
    if not tools:
        return None if request.output_schema is None else {**held_to(request.output_schema), **GUIDANCE}
    forms = []
    parts: dict[str, Any] = {}
    if request.tool_choice in (None, "auto"):
        said: dict[str, Any] = {"type": "string", "minLength": 1}
        if request.output_schema is not None:
            parts[SAY] = held_to(request.output_schema, place=f"/$defs/{SAY}")
            said = {"$ref": f"#/$defs/{SAY}"}
        forms.append(_form({SAY: said}))
    for position, tool in enumerate(tools):
        parts[str(position)] = {"type": "object", **held_to(tool.parameters, place=f"/$defs/{position}")}
        forms.append(_form({TOOL: {"const": tool.name}, INPUT: {"$ref": f"#/$defs/{position}"}}))
    return {"anyOf": forms, "$defs": parts, **GUIDANCE}


def _form(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _instructions(request: ChatRequest, tools: Sequence[Tool]) -> str:
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


def _in_turns(messages: Sequence[Message], *, as_answers: bool) -> list[dict[str, str]]:
    """User and assistant in turns: messages that follow each other from one side are one."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    turns: list[dict[str, str]] = []
    for message in messages:
        if message.role == "assistant":
            role, text = "assistant", _assistant(message, as_answers)
        elif message.role == "tool":
            role, text = "user", _result(message, names)
        else:
            role, text = "user", _content(message)
        if not text.strip():
            continue
        text = _unmarked(text)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] = _joined(turns[-1]["content"], text)
        else:
            turns.append({"role": role, "content": text})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": EARLIER})
    return turns


def _assistant(message: Message, as_answers: bool) -> str:
    """What the model said, in the form that it is to answer in now."""
    text = message_text(message)
    said = [dump_json({SAY: text}) if as_answers else text] if text.strip() else []
    return "\n".join([*said, *(_call(call) for call in message.tool_calls)])


def _call(call: ToolCall) -> str:
    return dump_json({TOOL: call.name, INPUT: call.input if call.invalid_input is None else call.invalid_input})


def _result(message: Message, names: Mapping[str, str]) -> str:
    name = message.name or names.get(message.tool_call_id or "") or "a tool"
    return f"{'Error' if message.is_error else 'Result'} of {name}: {_content(message) or '(nothing)'}"


def _content(message: Message) -> str:
    if not message.parts:
        return message_text(message)
    return "\n\n".join(filter(None, map(_part, message.parts)))


def _part(part: MessagePart) -> str:
    mime, data = inline_data(part)
    if part.kind == "file" and data and is_text(mime):
        return (f"{part.name}:\n" if part.name else "") + decoded_text(data)
    return render_part(part)


def _unmarked(text: str) -> str:
    """The text, with no mark that ends a message: llama.cpp reads such marks in any text, also in what a user wrote."""
    return _MARKS.sub("<\u200b", text)


def _joined(before: str | None, text: str) -> str:
    return f"{before}\n\n{text}" if before else text
