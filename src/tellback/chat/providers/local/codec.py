"""Encode requests for llama.cpp with any chat template, and decode its streamed answers.

If a request has tools, a JSON schema constrains the answer to `{"say": ...}` or `{"tool": ..., "input": ...}`, since
small models have no reliable tool format. Histories become alternating user and assistant messages, which every
template accepts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tellback.chat.model import ChatRequest
from tellback.chat.output import append_schema_instructions
from tellback.chat.providers.base import StreamReader
from tellback.chat.providers.errors import error_from_status
from tellback.chat.providers.media import (
    HISTORY_OMITTED,
    generate_call_id,
    merge_turns,
    render_text_file,
    split_system_messages,
)
from tellback.errors import ProviderError, ProviderRequestError
from tellback.tools import Tool
from tellback.tools.json_schema import (
    JSON_TYPES,
    SCHEMA_KEYWORDS,
    SCHEMA_LIST_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    closed_object,
    resolve_reference,
)
from tellback.types import (
    ChatReply,
    Message,
    MessagePart,
    ReplyDelta,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
    message_text,
    render_part,
)
from tellback.types.jsontext import dump_json, parse_arguments

GUIDANCE = {"x-guidance": {"whitespace_flexible": False, "lenient": True, "coerce_one_of": True}}
"""Forbid blanks between tokens, which small models write endlessly, and ignore unknown keywords."""

_IGNORED_KEYWORDS = frozenset(
    (
        *("title", "description", "default", "examples", "discriminator"),
        *("deprecated", "readOnly", "writeOnly", "$id"),
    )
)
_NON_REGULAR = re.compile(r"\(\?[=!<]|\\[1-9]")

SAY, TOOL, INPUT = "say", "tool", "input"
DEFAULT_MAX_TOKENS = 1_024
"""The default limit of an answer, since a small model may never stop."""

_CONTROL_TOKENS = re.compile(r"<(?=\|[^<>\s|]{1,40}\|>|/?(?:s|bos|eos|start_of_turn|end_of_turn)>)", re.IGNORECASE)

_BLANKS = " \t\r\n"
_INCOMPLETE_ESCAPE = re.compile(r"\\(u.{0,3})?|\\u[dD][89abAB]..(\\(u.{0,3})?)?", re.DOTALL)
_SURROGATE_PAIR = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


def to_llama_schema(schema: Mapping[str, Any], *, ref_prefix: str = "") -> dict[str, Any]:
    """Remove what llama.cpp cannot enforce from a schema. `ref_prefix`, its path in a parent, is added to references.

    >>> to_llama_schema({"type": "string", "pattern": "(?=x)", "maxLength": 3})
    {'type': 'string', 'maxLength': 3}
    """

    def convert(node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        converted: dict[str, Any] = {}
        for name, value in node.items():
            if name in SCHEMA_MAP_KEYWORDS and isinstance(value, Mapping):
                converted[name] = {key: convert(inner) for key, inner in value.items()}
            elif name in SCHEMA_LIST_KEYWORDS and isinstance(value, list):
                converted[name] = [convert(inner) for inner in value]
            elif name in SCHEMA_KEYWORDS:
                converted[name] = convert(value)
            elif name == "$ref":
                if isinstance(resolve_reference(value, schema), Mapping):
                    converted[name] = f"#{ref_prefix}{value[1:]}"
            elif name not in _IGNORED_KEYWORDS and _is_supported(name, value):
                converted[name] = value
        return converted

    llama_schema: dict[str, Any] = convert(schema)
    return llama_schema


def _is_supported(name: str, value: Any) -> bool:
    if name == "type":
        types = value if isinstance(value, list) else [value]
        return bool(types) and all(isinstance(each, str) and each in JSON_TYPES for each in types)
    if name != "pattern":
        return True
    try:
        re.compile(value)
    except (re.error, TypeError):
        return False
    return _NON_REGULAR.search(value) is None


def encode(request: ChatRequest) -> dict[str, Any]:
    """Build the body of a streamed request, without the schema of `build_answer_schema`."""
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
        # With progress reports, a request can be cancelled while a long prompt is read, and does not time out.
        "return_progress": True,
    }


def offered_tools(request: ChatRequest) -> tuple[Tool, ...]:
    """Return the tools that may be called, by `tool_choice`: all, one or none."""
    choice = request.tool_choice
    if choice == "none":
        return ()
    if choice in (None, "auto", "required", "any"):
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == choice)


def build_answer_schema(request: ChatRequest) -> dict[str, Any] | None:
    """Build the schema that constrains the answer, or return None for free text."""
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
        alternatives.append(closed_object({SAY: say_schema}))
    for position, tool in enumerate(tools):
        definitions[str(position)] = {
            "type": "object",
            **to_llama_schema(tool.parameters, ref_prefix=f"/$defs/{position}"),
        }
        alternatives.append(closed_object({TOOL: {"const": tool.name}, INPUT: {"$ref": f"#/$defs/{position}"}}))
    return {"anyOf": alternatives, "$defs": definitions, **GUIDANCE}


def _tool_instructions(request: ChatRequest, tools: Sequence[Tool]) -> str:
    call = '{"tool": "<name>", "input": {...}} to use a tool; you get its result, and answer then'
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
        text += f"\n\nThe schema of your answer:\n{dump_json(request.output_schema)}"
    return text


def _encode_messages(messages: Sequence[Message], *, as_answers: bool) -> list[dict[str, str]]:
    """Encode messages with alternating roles; consecutive messages of one role are merged."""
    names = {call.id: call.name for message in messages for call in message.tool_calls}

    def encode_message(message: Message) -> tuple[str, list[str]]:
        if message.role == "assistant":
            role, text = "assistant", _encode_assistant(message, as_answers)
        elif message.role == "tool":
            role, text = "user", _encode_result(message, names)
        else:
            role, text = "user", _encode_content(message)
        return role, [_escape_control_tokens(text)] if text.strip() else []

    turns = merge_turns(map(encode_message, messages), HISTORY_OMITTED)
    return [{"role": role, "content": "\n\n".join(texts)} for role, texts in turns]


def _encode_assistant(message: Message, as_answers: bool) -> str:
    """Encode the model's message in the form that its answer must have now."""
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
    text = render_text_file(part)
    return render_part(part) if text is None else text


def _escape_control_tokens(text: str) -> str:
    """Escape tokens that end a message, since llama.cpp also reads such tokens in a user's text."""
    return _CONTROL_TOKENS.sub("<\u200b", text)


def _join_paragraphs(before: str | None, text: str) -> str:
    return f"{before}\n\n{text}" if before else text


class JsonStringDecoder:
    """Decodes the content of one JSON string from single characters."""

    def __init__(self) -> None:
        self.is_closed = False
        self._escape = ""

    def feed(self, char: str) -> str:
        """Return the text that this character completes: none, one character or several."""
        if not self._escape and char != "\\":
            self.is_closed = char == '"'
            return "" if self.is_closed else char
        self._escape += char
        if _INCOMPLETE_ESCAPE.fullmatch(self._escape):
            return ""
        escape, self._escape = self._escape, ""
        if len(escape) in (2, 6) or _SURROGATE_PAIR.fullmatch(escape):
            return _decode_escape(escape)
        return _REPLACEMENT + "".join(map(self.feed, escape[6:]))  # an unpaired surrogate


def _decode_escape(escape: str) -> str:
    try:
        text: str = json.loads(f'"{escape}"')
    except ValueError:
        return _REPLACEMENT if escape.startswith("\\u") else escape[1:]
    return _REPLACEMENT if "\ud800" <= text <= "\udfff" else text


class JsonValueScanner:
    """Finds the end of one JSON value in a text."""

    def __init__(self) -> None:
        self.is_closed = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def accept(self, char: str) -> bool:
        """Whether the character belongs to the value; the first other character ends it."""
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif char == "\\":
                self._escaped = True
            elif char == '"':
                self._in_string = False
                self.is_closed = self._depth == 0
            return True
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]" and self._depth:
            self._depth -= 1
            self.is_closed = self._depth == 0
        elif self._depth == 0 and char in f",}}]{_BLANKS}":
            self.is_closed = True
            return False
        return True


class AnswerReader:
    """Converts the pieces of an answer to deltas. `expects_json` means that `say` is a JSON value of a schema."""

    def __init__(self, *, expects_json: bool = False) -> None:
        self._expects_json = expects_json
        self._state = "start"
        self._string = JsonStringDecoder()
        self._raw = JsonValueScanner()
        self._key = ""
        self._name = ""
        self._id = ""
        self._input: list[str] = []
        self._is_input_complete = False

    def feed(self, piece: str) -> Iterator[ReplyDelta]:
        """Add the next piece and yield its deltas: at most one of each kind."""
        text_pieces: list[str] = []
        input_pieces: list[str] = []
        for char in piece:
            text = self._step(char)
            if text:
                (input_pieces if self._key == INPUT else text_pieces).append(text)
            if self._id == "" and self._name and self._state != "name":
                self._id = generate_call_id("call")
                yield ToolUseStart(self._id, self._name)
        if text_pieces:
            yield TextDelta("".join(text_pieces))
        if input_pieces:
            text = "".join(input_pieces)
            self._input.append(text)
            if self._id:
                yield ToolUseInputDelta(self._id, text)

    def close(self) -> Iterator[ReplyDelta]:
        if self._id:
            yield ToolUseEnd(self._id)

    @property
    def call(self) -> ToolCall | None:
        """The call, if there is one. An incomplete call has its text in `invalid_input`."""
        if not self._id:
            return None
        text = "".join(self._input)
        value, invalid = parse_arguments(text)
        if not self._is_input_complete:
            value, invalid = {}, text
        return ToolCall(self._id, self._name, value, invalid)

    def _step(self, char: str) -> str:
        """Read one character; return text of the answer or of a call's input."""
        match self._state:
            case "start":
                if char in _BLANKS:
                    return ""
                self._state = "object" if char == "{" else "free"
                return "" if char == "{" else char
            case "free":
                return char
            case "object":
                if char == '"':
                    self._state, self._string, self._key = "key", JsonStringDecoder(), ""
                elif char == "}":
                    self._state = "end"
            case "key":
                self._key += self._string.feed(char)
                if self._string.is_closed:
                    self._state = "colon"
            case "colon":
                if char not in f":{_BLANKS}":
                    return self._start_value(char)
            case "name":
                self._name += self._string.feed(char)
                if self._string.is_closed:
                    self._state = "object"
            case "saying":
                text = self._string.feed(char)
                if self._string.is_closed:
                    self._state = "object"
                return text
            case "raw":
                return self._raw_step(char)
        return ""

    def _start_value(self, char: str) -> str:
        self._string = JsonStringDecoder()
        if char == '"' and self._key == TOOL:
            self._state = "name"
            return ""
        if char == '"' and self._key == SAY and not self._expects_json:
            self._state = "saying"
            return ""
        self._state, self._raw = "raw", JsonValueScanner()
        return self._raw_step(char)

    def _raw_step(self, char: str) -> str:
        is_part = self._raw.accept(char)
        if self._raw.is_closed:
            self._is_input_complete |= self._key == INPUT
            self._state = "object" if is_part or char != "}" else "end"
        return char if is_part and self._key in (SAY, INPUT) else ""


class LocalStreamReader(StreamReader):
    """The state of one call's stream. `reader` parses answers of requests with tools; other answers are text."""

    def __init__(self, provider: str, model: str, reader: AnswerReader | None) -> None:
        super().__init__(provider, model)
        self._reader = reader
        self._finish_reason: str | None = None
        self._timings: Mapping[str, Any] = {}

    @property
    def is_complete(self) -> bool:
        return self._finish_reason is not None

    def add(self, chunk: Mapping[str, Any]) -> Iterator[ReplyDelta]:
        if "error" in chunk:
            raise error_from_chunk(chunk, self._provider, self._model)
        self._usage = chunk.get("usage") or self._usage
        self._timings = chunk.get("timings") or self._timings
        for choice in chunk.get("choices") or ():
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            delta = choice.get("delta") or {}
            if thought := delta.get("reasoning_content"):
                yield self._record(ThinkingDelta(thought))
            if piece := delta.get("content"):
                yield from map(self._record, [TextDelta(piece)] if self._reader is None else self._reader.feed(piece))

    def close(self) -> Iterator[ReplyDelta]:
        return iter(()) if self._reader is None else self._reader.close()

    def reply(self) -> ChatReply:
        call = self._reader.call if self._reader is not None else None
        reason = STOP_REASONS.get(self._finish_reason or "", self._finish_reason or "")
        if call is not None and reason == "end_turn":
            reason = "tool_use"
        raw = {"finish_reason": self._finish_reason, "usage": self._usage or {}, "timings": self._timings}
        self._usage = {**(self._usage or {}), "cost_usd": 0.0}
        return self._build_reply(() if call is None else (call,), reason, raw)


def error_from_chunk(chunk: Mapping[str, Any], provider: str, model: str) -> ProviderError:
    """Convert an error of llama.cpp to a `ProviderError`."""
    error = chunk["error"]
    if error.get("type") == "exceed_context_size_error":
        return ProviderRequestError(
            f"The request has {error.get('n_prompt_tokens')} tokens, but {model} was opened with a context of"
            f" {error.get('n_ctx')}. Shorten the history or the tools, or pass LocalModel(..., context=...).",
            provider=provider,
            model=model,
            status=400,
            body=dict(chunk),
        )
    return error_from_status(provider, model, error.get("code"), str(error.get("message")), body=dict(chunk))
