"""OpenAI's chat completions, through the `openai` SDK, for OpenAI and the many hosts with the same API.

`OpenAIModel` is the model class, and `OpenAIDialect` describes how hosts differ. A host without a model class gets its
class from `create_model_class`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from tellback.chat.model import ChatRequest, ModelOptions
from tellback.chat.output import append_schema_instructions, is_exact_schema
from tellback.chat.providers.base import IdleTimeout, ProviderModel, StreamReader, read_stream, watch_bytes
from tellback.chat.providers.errors import (
    as_dict,
    build_arguments,
    disable_sdk_retries,
    error_from_body,
    error_from_sdk,
    unreadable_response_error,
)
from tellback.chat.providers.media import generate_call_id, get_inline_data, render_text_file
from tellback.chat.providers.openai import PROVIDER
from tellback.chat.registry import BuiltinProvider, Embeddings
from tellback.errors import ConfigurationError, MissingExtraError, MissingKeyError, ProviderError
from tellback.tools import Tool
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

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"

META_KEY = "openai"
_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/x-wav": "wav", "audio/wave": "wav"}

STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


@dataclass(frozen=True, slots=True)
class OpenAIDialect:
    """How a host's API differs from OpenAI's."""

    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    """Whether a streamed request contains `stream_options` to get the usage."""
    json_schema: bool = True
    """Whether the host enforces a JSON schema; if not, the prompt contains the schema."""
    think_tags: bool = True
    """Whether its models may write their thinking as <think>...</think> into the text."""
    cache_control: bool = False
    """Whether parts may have Anthropic's cache marks."""
    call_extras: bool = True
    """Whether extra fields of the host's tool calls may be sent back."""
    reasoning_details: bool = False
    """Whether reasoning comes in blocks that must be sent back."""
    base64_embeddings: bool = False
    """Whether vectors can be requested in base64, which is shorter."""


OPENAI_DIALECT = OpenAIDialect(
    max_tokens_field="max_completion_tokens", think_tags=False, call_extras=False, base64_embeddings=True
)
COMPATIBLE_DIALECT = OpenAIDialect()


class ThinkTagSplitter:
    """Splits text into text and thinking deltas. Only a tag at the beginning counts."""

    def __init__(self, enabled: bool = True) -> None:
        self._state = "start" if enabled else "text"
        self._buffer = ""

    def feed(self, text: str) -> Iterator[TextDelta | ThinkingDelta]:
        """Yield the deltas that this piece completes; text that may be the beginning of a tag is withheld."""
        if self._state == "after":  # the blank line after the tag is dropped
            text = text.lstrip("\n")
            self._state = "text" if text else "after"
        if self._state in ("text", "after"):
            if text:
                yield TextDelta(text)
            return
        self._buffer += text
        if self._state == "start":
            stripped = self._buffer.lstrip()
            if stripped.startswith(THINK_OPEN):
                self._state, self._buffer = "thinking", stripped[len(THINK_OPEN) :]
            elif THINK_OPEN.startswith(stripped):
                return
            else:
                self._state, text, self._buffer = "text", self._buffer, ""
                yield TextDelta(text)
                return
        thought, closed, rest = self._buffer.partition(THINK_CLOSE)
        if closed:
            if thought:
                yield ThinkingDelta(thought)
            self._buffer, self._state = "", "after"
            yield from self.feed(rest)
            return
        partial_length = _partial_tag_length(self._buffer, THINK_CLOSE)
        split = len(self._buffer) - partial_length
        ready, self._buffer = self._buffer[:split], self._buffer[split:]
        if ready:
            yield ThinkingDelta(ready)

    def finish(self) -> Iterator[TextDelta | ThinkingDelta]:
        """Yield the text that is still withheld at the end."""
        text, self._buffer = self._buffer, ""
        if text:
            yield ThinkingDelta(text) if self._state == "thinking" else TextDelta(text)


def _partial_tag_length(text: str, tag: str) -> int:
    """Return the number of characters at the end of `text` that may be the beginning of `tag`."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-size:])), 0)


def encode(model: str, request: ChatRequest, dialect: OpenAIDialect) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build the arguments of `chat.completions.create`, and the other fields of the body."""
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
    parts = message.parts or ()
    is_plain = all(part.kind == "text" and "cache_control" not in (part.meta or {}) for part in parts)
    if message.role == "system" or is_plain:  # some hosts accept only text as content
        return {"role": message.role, "content": message_text(message)}
    return {"role": message.role, "content": [_encode_part(part, dialect) for part in parts]}


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
    # Extra fields of the host's call are sent back with it (Gemini's signatures, for example).
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
    """Encode an image, audio or file part, or return None if the API does not support it."""
    mime, data = get_inline_data(part)
    if part.kind == "image" and (part.url or data):
        image = {"url": f"data:{mime or 'image/png'};base64,{data}" if data else part.url}
        if part.meta and "detail" in part.meta:
            image["detail"] = part.meta["detail"]
        return {"type": "image_url", "image_url": image}
    if part.kind == "audio" and data:
        format = _AUDIO_FORMATS.get(mime or "", (mime or "audio/wav").partition("/")[2])
        return {"type": "input_audio", "input_audio": {"data": data, "format": format}}
    if (text := render_text_file(part)) is not None:
        return {"type": "text", "text": text}
    if part.kind == "file" and data:
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
    """Forbid other properties in the schema's objects; also return whether strict mode accepts the schema."""
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


def decode(completion: Any, provider: str, model: str, dialect: OpenAIDialect) -> ChatReply:
    """Decode a whole completion, as a stream of one chunk with a message instead of a delta."""
    body = as_dict(completion)
    if body.get("error"):
        raise error_from_body(body, provider, model)
    return replace(OpenAIStreamReader(provider, model, dialect, is_whole=True).read(completion), raw=completion)


def arguments_text(arguments: Any) -> str:
    """Return a call's arguments as JSON text if the host sent text, an object or nothing."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return dump_json(arguments)


def is_thinking_part(part: Any) -> bool:
    """Whether a part of the content is thinking."""
    return isinstance(part, Mapping) and part.get("type") == "thinking"


def part_text(part: Any) -> str:
    """Return the text of a part of the content."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        part = as_dict(part) if hasattr(part, "model_dump") else {}
    inner = part.get("text") or part.get("thinking") or ""
    return inner if isinstance(inner, str) else "".join(map(part_text, inner))


def normalize_stop_reason(finish: str | None, has_calls: bool) -> str:
    """Convert a finish reason to ours; with calls, some hosts send "stop" or nothing."""
    if has_calls and finish in (None, "", "stop", "tool_calls", "function_call"):
        return "tool_use"
    if not finish:
        return "end_turn"
    return STOP_REASONS.get(finish, finish)


def reasoning_to_meta(details: Any, dialect: OpenAIDialect) -> Mapping[str, Any] | None:
    """Build a message's `meta` for reasoning that must be sent back."""
    if not details or not dialect.reasoning_details:
        return None
    merged: list[dict[str, Any]] = []
    for detail in map(as_dict, details):
        last = merged[-1] if merged else None
        if last is None or (last.get("type"), last.get("index")) != (detail.get("type"), detail.get("index")):
            merged.append(detail)
            continue
        for name, value in detail.items():  # a stream has each block in pieces
            is_piece = name in ("text", "summary", "data") and isinstance(last.get(name), str)
            last[name] = last[name] + value if is_piece and isinstance(value, str) else value or last.get(name)
    return {META_KEY: {"reasoning_details": merged}}


class OpenAIStreamReader(StreamReader):
    """The state of one call's stream or, with `is_whole`, of a completion in one piece.

    Some hosts send no finish reason, so a reply is complete after a finish reason, after a last chunk that has only
    usage, or after the closing [DONE], which `saw_end` reports.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        dialect: OpenAIDialect,
        saw_end: Callable[[], bool] = lambda: True,
        *,
        is_whole: bool = False,
    ) -> None:
        super().__init__(provider, model)
        self._is_whole = is_whole
        self._finish_reason: str | None = None
        self._has_closing_usage = False
        self._saw_end = saw_end
        self._dialect = dialect
        self._splitter = ThinkTagSplitter(dialect.think_tags)
        self._calls = ToolCallAssembler(is_whole)
        self._reasoning_details: list[Any] = []
        self._is_refusal = False

    @property
    def is_complete(self) -> bool:
        if self._finish_reason == "error":
            return False
        return bool(self._finish_reason) or self._has_closing_usage or self._saw_end()

    def add(self, chunk: Any) -> Iterator[ReplyDelta]:
        self._model = getattr(chunk, "model", None) or self._model
        choices = getattr(chunk, "choices", None) or ()
        usage = _chunk_usage(chunk)
        if usage is not None:
            self._usage = usage
            self._has_closing_usage = not choices
        for choice in choices[:1] if self._is_whole else choices:
            self._finish_reason = getattr(choice, "finish_reason", None) or self._finish_reason
            if self._finish_reason == "error" or getattr(choice, "error", None):
                raise error_from_body(as_dict(choice), self._provider, self._model)
            # In a stream, ignore `message`: some hosts send the whole message at the end, which repeats the deltas.
            delta = getattr(choice, "message" if self._is_whole else "delta", None)
            if delta is not None:
                yield from self._add_delta(delta)

    def _add_delta(self, delta: Any) -> Iterator[ReplyDelta]:
        self._reasoning_details.extend(getattr(delta, "reasoning_details", None) or ())
        reasoning = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
        if reasoning and isinstance(reasoning, str):
            yield self._record(ThinkingDelta(reasoning))
        content: Any = getattr(delta, "content", None)
        if isinstance(content, str):
            yield from map(self._record, self._splitter.feed(content))
        else:
            for part in content or ():
                if piece := part_text(part):
                    yield self._record(ThinkingDelta(piece) if is_thinking_part(part) else TextDelta(piece))
        refusal = getattr(delta, "refusal", None)
        if refusal:
            self._is_refusal = True
            yield self._record(TextDelta(refusal))
        for position, call in enumerate(getattr(delta, "tool_calls", None) or ()):
            yield from self._calls.add(call, position)
        function = getattr(delta, "function_call", None)
        if function is not None:
            yield from self._calls.add_function(function)

    def close(self) -> Iterator[ReplyDelta]:
        yield from map(self._record, self._splitter.finish())
        yield from self._calls.close()

    def reply(self) -> ChatReply:
        calls = self._calls.build_calls()
        stop_reason = "refusal" if self._is_refusal else normalize_stop_reason(self._finish_reason, bool(calls))
        raw = {"model": self._model, "finish_reason": self._finish_reason, "usage": self._usage}
        return self._build_reply(calls, stop_reason, raw, reasoning_to_meta(self._reasoning_details, self._dialect))


@dataclass(slots=True)
class _PartialCall:
    """An incomplete call; `host_id` is the host's id, which may not be unique."""

    id: str
    host_id: str
    extras: Mapping[str, Any] | None
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


class ToolCallAssembler:
    """Assembles tool calls from pieces; hosts differ in how they number and name the pieces.

    With `is_whole`, each piece is a call. This includes a call without a name, so that the model gets an error.
    """

    def __init__(self, is_whole: bool) -> None:
        self._is_whole = is_whole
        self._open_calls: dict[Any, _PartialCall] = {}
        self._calls: list[_PartialCall] = []

    def add(self, piece: Any, position: int) -> Iterator[ReplyDelta]:
        """Add a piece; `position` is its position in the chunk, for hosts that send no index."""
        index = getattr(piece, "index", None)
        key = ("position", position) if index is None or self._is_whole else index
        yield from self._add(
            key, getattr(piece, "function", None), getattr(piece, "id", None) or "", _call_extras(piece)
        )

    def add_function(self, function: Any) -> Iterator[ReplyDelta]:
        """Add a piece of a `function_call`, the API's older form of a call."""
        yield from self._add("function_call", function, "", None)

    def _add(self, key: Any, function: Any, host_id: str, extras: Mapping[str, Any] | None) -> Iterator[ReplyDelta]:
        name = getattr(function, "name", None) or ""
        arguments = arguments_text(getattr(function, "arguments", None))
        call = self._open_calls.get(key)
        if call is None or (name and call.name and _starts_new_call(call, host_id, arguments)):
            used = {other.id for other in self._calls}
            id = host_id if host_id and host_id not in used else generate_call_id("call")
            call = _PartialCall(id, host_id, extras)
            self._open_calls[key] = call
            self._calls.append(call)
        if name and not call.name:
            call.name = name
            yield ToolUseStart(call.id, name)
            arguments = call.arguments + arguments
            call.pieces = []
        if arguments:
            call.pieces.append(arguments)
            if call.name:
                yield ToolUseInputDelta(call.id, arguments)

    def close(self) -> Iterator[ReplyDelta]:
        for call in self._calls:
            if call.name:
                yield ToolUseEnd(call.id)

    def build_calls(self) -> tuple[ToolCall, ...]:
        calls = []
        for call in self._calls:
            if call.name or self._is_whole:
                value, invalid = parse_arguments(call.arguments)
                calls.append(ToolCall(call.id, call.name, value, invalid, call.extras))
        return tuple(calls)


def _starts_new_call(call: _PartialCall, host_id: str, arguments: str) -> bool:
    """Whether a piece with a name begins a new call, although its index belongs to an open call."""
    if host_id:
        return host_id != call.host_id
    # Without ids, a new call begins only if the open call is complete: some hosts repeat the name with every piece.
    value, invalid = parse_arguments(call.arguments)
    return bool(arguments) and bool(value) and invalid is None


def _call_extras(piece: Any) -> Mapping[str, Any] | None:
    extras = {name: value for name, value in (getattr(piece, "model_extra", None) or {}).items() if name != "index"}
    return {META_KEY: extras} if extras else None


def _chunk_usage(chunk: Any) -> Mapping[str, Any] | None:
    usage = getattr(chunk, "usage", None)
    if usage is None:
        groq = getattr(chunk, "x_groq", None)
        usage = groq.get("usage") if isinstance(groq, Mapping) else getattr(groq, "usage", None)
    return as_dict(usage) if usage else None


class OpenAIModel(ProviderModel):
    """OpenAI's models. The key is `api_key` or OPENAI_API_KEY.

    >>> OpenAIModel("gpt-5", config={"reasoning_effort": "low"}, timeout=30)
    OpenAIModel('gpt-5')
    """

    declaration = PROVIDER
    provider = PROVIDER.display_name
    dialect: OpenAIDialect = OPENAI_DIALECT
    headers: Mapping[str, str] | None = None

    def _resolve_api_key(self) -> str:
        variables = self.declaration.key_variables
        key = self._api_key or next(filter(None, map(os.environ.get, variables)), None)
        if not key:
            raise MissingKeyError(self.provider, variables)
        return key

    def _open_client(self, user_client: Any) -> Any:
        try:
            import openai
        except ImportError as error:
            raise MissingExtraError("openai", "openai", type(self).__name__) from error
        if user_client is not None:
            return disable_sdk_retries(user_client, user_client.chat.completions.create, "openai.AsyncOpenAI()")
        return openai.AsyncOpenAI(
            api_key=self._resolve_api_key(),
            base_url=self._base_url or self.declaration.base_url,
            default_headers=self.headers,
            max_retries=0,
            # Not the SDK's own HTTP client, which starts a task when it is garbage-collected.
            http_client=openai.DefaultAsyncHttpxClient(),
        )

    def _build_arguments(self, model: str, request: ChatRequest) -> dict[str, Any]:
        body, config = encode(model, request, self.dialect)
        return build_arguments(body, config, self.timeout)

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        completion = await idle_timeout.wait(
            self.client.chat.completions.create(**self._build_arguments(model, request))
        )
        if not hasattr(completion, "model_dump"):
            raise unreadable_response_error(self.provider, model, f"{completion!r:.200}")
        return decode(completion, self.provider, model, self.dialect)

    async def _stream_once(
        self, model: str, request: ChatRequest, idle_timeout: IdleTimeout
    ) -> AsyncIterator[ReplyDelta]:
        arguments = self._build_arguments(model, request)
        if self.dialect.stream_usage:
            arguments["stream_options"] = {"include_usage": True}
        stream = await idle_timeout.wait(self.client.chat.completions.create(**arguments, stream=True))
        # The SDK hides the closing [DONE], but only [DONE] shows that a stream without a finish reason is complete.
        tail = b""

        def on_chunk(chunk: bytes) -> None:
            nonlocal tail
            tail = (tail + chunk)[-64:]
            idle_timeout.reset()

        watch_bytes(stream.response, on_chunk)
        async with stream:
            reader = OpenAIStreamReader(self.provider, model, self.dialect, saw_end=lambda: b"[DONE]" in tail)
            async for delta in read_stream(idle_timeout.iterate(stream), reader, model):
                yield delta

    async def request_embeddings(
        self, texts: list[str], dimensions: int | None, query: bool, idle_timeout: IdleTimeout
    ) -> Any:
        body: dict[str, Any] = {"model": self.model, "input": texts}
        body["encoding_format"] = "base64" if self.dialect.base64_embeddings else "float"
        if dimensions:
            body["dimensions"] = dimensions
        arguments = build_arguments(body, dict(self.config), self.timeout)
        response = await idle_timeout.wait(self.client.embeddings.create(**arguments))
        items = getattr(response, "data", None)
        if not isinstance(items, list):
            raise unreadable_response_error(self.provider, self.model, f"{response!r:.200}")
        indices = [getattr(item, "index", None) for item in items]
        if sorted(map(str, indices)) == sorted(map(str, range(len(items)))):
            items = sorted(items, key=lambda item: int(item.index))
        elif len(set(indices)) > 1:  # some servers send no indices, and keep the order
            raise unreadable_response_error(self.provider, self.model, f"its vectors have the indices {indices}")
        return [self._decode_vector(getattr(item, "embedding", None)) for item in items]

    def _decode_vector(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        import numpy as np

        try:
            return np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        except (binascii.Error, ValueError) as error:
            problem = f"a vector is not base64 of floats: {error}"
            raise unreadable_response_error(self.provider, self.model, problem) from error

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        import openai

        return error_from_sdk(openai, error, self.provider, model)


class CompatibleModel(OpenAIModel):
    """A model on any server with OpenAI's chat API: vLLM, LM Studio, llama.cpp, a gateway.

    `provider` is the name in errors and usage. `json_schema=False` is for servers that cannot enforce a schema,
    `stream_usage=False` for servers that reject `stream_options`.

    >>> CompatibleModel("qwen3", base_url="http://127.0.0.1:8000/v1")
    CompatibleModel('qwen3')
    """

    declaration = BuiltinProvider("compatible", "compatible server", lambda model: False, "", embeddings=Embeddings())
    provider = declaration.display_name
    dialect = COMPATIBLE_DIALECT

    def __init__(
        self,
        model: str,
        *,
        provider: str | None = None,
        json_schema: bool = True,
        stream_usage: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        super().__init__(model, **options)
        if not (self._base_url or self.declaration.base_url or self._user_client):
            raise ConfigurationError("CompatibleModel needs base_url=, such as 'http://127.0.0.1:8000/v1'.")
        if provider is not None:
            self.provider = provider
        self.dialect = OpenAIDialect(json_schema=json_schema, stream_usage=stream_usage)

    def _resolve_api_key(self) -> str:
        return self._api_key or "not-needed"  # the SDK requires a key; most such servers do not


def create_model_class(declared: BuiltinProvider) -> type[OpenAIModel]:
    """Create the model class of a host with OpenAI's API that declares no model class."""

    class HostModel(OpenAIModel):
        declaration = declared
        provider = declared.display_name
        dialect = COMPATIBLE_DIALECT

    HostModel.__name__ = HostModel.__qualname__ = f"{declared.display_name.replace(' ', '')}Model"
    return HostModel
