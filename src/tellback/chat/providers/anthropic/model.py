"""Anthropic's messages API: `AnthropicModel`, and the encoding of messages, replies and streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from tellback.chat.model import ChatRequest, ModelOptions
from tellback.chat.output import append_schema_instructions, is_exact_schema
from tellback.chat.providers.anthropic import PROVIDER
from tellback.chat.providers.base import IdleTimeout, ProviderModel, StreamReader, read_stream, watch_bytes
from tellback.chat.providers.errors import (
    as_dict,
    build_arguments,
    disable_sdk_retries,
    error_from_body,
    error_from_sdk,
    unreadable_response_error,
)
from tellback.chat.providers.media import (
    EARLIER_TEXT,
    HISTORY_OMITTED,
    decode_base64_text,
    generate_call_id,
    get_inline_data,
    is_text_type,
    merge_turns,
    split_system_messages,
)
from tellback.errors import MissingExtraError, MissingKeyError, ProviderError
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
    is_instructions,
    message_text,
    render_part,
)
from tellback.types.jsontext import parse_arguments

META_KEY = "anthropic"

DEFAULT_MAX_TOKENS = 8_192
STREAM_ABOVE_TOKENS = 8_192
"""Larger replies are streamed and collected, since a request without a stream may time out."""


def blocks_to_meta(blocks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Build a message's `meta` for these blocks, or None if text and calls are enough."""
    if all(block.get("type") in ("text", "tool_use") and not block.get("citations") for block in blocks):
        return None
    return {META_KEY: {"content": [_drop_nulls(block) for block in blocks]}}


def blocks_from_meta(message: Message) -> list[dict[str, Any]] | None:
    """Return the original blocks, or None if the message was changed since."""
    state = (message.meta or {}).get(META_KEY)
    if not state:
        return None
    blocks = [dict(block) for block in state["content"]]
    earlier = (message.meta or {}).get(EARLIER_TEXT)
    if earlier:  # thinking must stay first
        thinking = [block for block in blocks if "thinking" in block.get("type", "")]
        rest = [block for block in blocks if "thinking" not in block.get("type", "")]
        blocks = [*thinking, {"type": "text", "text": earlier}, *rest]
    text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
    calls = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    if text != message_text(message) or calls != [call.id for call in message.tool_calls]:
        return None
    return [block for block in blocks if block.get("type") != "text" or (block.get("text") or "").strip()]


def _drop_nulls(block: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if value is not None}


def encode(
    model: str, request: ChatRequest, *, default_max_tokens: int, cache: bool | str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build the arguments of `messages.create`, and the other fields of the body."""
    config = dict(request.config)
    system, messages = split_system_messages(request.system, request.messages)
    marker = _cache_marker(cache)
    if marker:
        messages = _mark_conversation_end(messages, marker)
    limit = config.pop("max_tokens", default_max_tokens)
    if request.max_output_tokens is not None:
        limit = request.max_output_tokens
    body: dict[str, Any] = {"model": model, "max_tokens": limit, "messages": encode_messages(messages)}
    if request.output_schema is not None and not is_exact_schema(request.output_schema):
        # With such a schema, Claude could only return empty objects.
        system = append_schema_instructions(system, request.output_schema)
    if system:
        body["system"] = [{"type": "text", "text": system, "cache_control": marker}] if marker else system
    if marker:
        body["cache_control"] = marker
    tools = [_encode_tool(tool) for tool in request.tools]
    choice = _encode_tool_choice(request.tool_choice)
    if not tools:
        # The API rejects a history with tool calls if the request has no tools, so declare tools that cannot be called.
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in _called_tool_names(messages)]
        choice = {"type": "none"} if tools else None
    if tools:
        body["tools"] = tools
    if choice is not None:
        body["tool_choice"] = choice
    if request.output_schema is not None and is_exact_schema(request.output_schema):
        format = {"type": "json_schema", "schema": _import_sdk().transform_schema(dict(request.output_schema))}
        body["output_config"] = {**config.pop("output_config", {}), "format": format}
    return body, config


def encode_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Encode messages with alternating roles; tool results and the next user message share one message."""
    turns = merge_turns(map(_encode_message, messages), _text_block(HISTORY_OMITTED))
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _encode_message(message: Message) -> tuple[str, list[dict[str, Any]]]:
    if message.role == "tool":
        return "user", [_encode_tool_result(message)]
    if message.role != "assistant":
        return "user", _content_blocks(message)
    blocks = blocks_from_meta(message)
    if blocks is None:
        text = message_text(message)
        blocks = [_text_block(text)] if text.strip() else []
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.input)}
            for call in message.tool_calls
        ]
    return "assistant", blocks


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
    """Encode an image or document block, or return None if Anthropic does not support it (audio, other files)."""
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


def _mark_conversation_end(messages: Sequence[Message], marker: Mapping[str, Any]) -> list[Message]:
    """Set a cache breakpoint before the instructions for this request.

    Without it, the only breakpoint after the history would lie behind these instructions, so that the next request,
    which has others, could not read the history from the cache. Messages with breakpoints of their own stay unchanged:
    a request may have only four.
    """
    marked = list(messages)
    if any("cache_control" in (part.meta or {}) for message in messages for part in message.parts or ()):
        return marked
    for index, message in enumerate(messages):
        parts = message.parts or ()
        at = next((number for number, part in enumerate(parts) if is_instructions(part)), 0)
        if at:
            before = replace(parts[at - 1], meta={**(parts[at - 1].meta or {}), "cache_control": marker})
            marked[index] = replace(message, parts=(*parts[: at - 1], before, *parts[at:]))
    return marked


def decode(message: Any, provider: str, model: str) -> ChatReply:
    """Decode a whole `Message`."""
    if getattr(message, "type", None) == "error":
        raise error_from_body(as_dict(message), provider, model)
    if not hasattr(message, "content"):
        raise unreadable_response_error(provider, model, f"{message!r:.200}")
    reader = AnthropicStreamReader(provider, message.model or model)
    reader.add_message(message)
    return replace(reader.reply(), raw=message)


def ensure_call_id_and_name(block: dict[str, Any]) -> None:
    """Add an id and a name to a call if they are missing."""
    block["id"] = block.get("id") or generate_call_id("toolu")
    block["name"] = block.get("name") or ""


class AnthropicStreamReader(StreamReader):
    """The state of one call's stream: its blocks by index, and their pieces."""

    def __init__(self, provider: str, model: str) -> None:
        super().__init__(provider, model)
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._invalid_inputs: dict[int, str | None] = {}
        self._message_id: str | None = None
        self._stop_reason: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.is_finished or self._stop_reason is not None

    def add(self, event: Any) -> Iterator[ReplyDelta]:
        match getattr(event, "type", None):
            case "content_block_delta":
                yield from self._add_delta(event.index, event.delta)
            case "content_block_start":
                yield from self._start_block(event.index, as_dict(event.content_block))
            case "content_block_stop":
                block = self._blocks.get(event.index, {})
                if block.get("type") == "tool_use":
                    yield ToolUseEnd(block["id"])
            case "message_start":
                self._message_id, self._model = event.message.id, event.message.model or self._model
                self._update_usage(event.message)
            case "message_delta":
                self._stop_reason = event.delta.stop_reason or self._stop_reason
                self._update_usage(event)
            case "message_stop":
                self.is_finished = True

    def add_message(self, message: Any) -> None:
        self._blocks = dict(enumerate(map(as_dict, message.content or ())))
        self._stop_reason = message.stop_reason
        self._update_usage(message)

    def reply(self) -> ChatReply:
        for (index, name), pieces in self._pieces.items():
            block, text = self._blocks.setdefault(index, {}), "".join(pieces)
            if name == "input":
                block["input"], self._invalid_inputs[index] = parse_arguments(text)
            else:
                block[name] = (block.get(name) or "") + text
        self._pieces.clear()
        calls = []
        for index, block in sorted(self._blocks.items()):
            if block.get("type") == "tool_use":
                ensure_call_id_and_name(block)
                invalid = self._invalid_inputs.get(index)
                calls.append(ToolCall(block["id"], block["name"], block.get("input") or {}, invalid))
        blocks = [block for _, block in sorted(self._blocks.items())]
        self._text = [block.get("text") or "" for block in blocks if block.get("type") == "text"]
        self._thinking = [block.get("thinking") or "" for block in blocks if block.get("type") == "thinking"]
        stop_reason = self._stop_reason or ("tool_use" if calls else "end_turn")
        raw: dict[str, Any] = {"id": self._message_id, "model": self._model, "stop_reason": self._stop_reason}
        raw |= {"content": blocks, "usage": self._usage}
        return self._build_reply(calls, stop_reason, raw, blocks_to_meta(blocks))

    def _start_block(self, index: int, block: dict[str, Any]) -> Iterator[ReplyDelta]:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            ensure_call_id_and_name(block)
            yield ToolUseStart(block["id"], block["name"])
        elif block.get("type") == "text" and block.get("text"):
            yield TextDelta(block["text"])

    def _add_delta(self, index: int, delta: Any) -> Iterator[ReplyDelta]:
        block = self._blocks.setdefault(index, {})
        match getattr(delta, "type", None):
            case "text_delta":
                if delta.text:
                    self._append_piece(index, "text", delta.text)
                    yield TextDelta(delta.text)
            case "thinking_delta":
                if delta.thinking:
                    self._append_piece(index, "thinking", delta.thinking)
                    yield ThinkingDelta(delta.thinking)
            case "input_json_delta":
                self._append_piece(index, "input", delta.partial_json or "")
                if block.get("type") == "tool_use" and delta.partial_json:
                    yield ToolUseInputDelta(block["id"], delta.partial_json)
            case _:
                _merge_delta(block, as_dict(delta))

    def _append_piece(self, index: int, name: str, piece: str) -> None:
        self._pieces.setdefault((index, name), []).append(piece)

    def _update_usage(self, event: Any) -> None:
        """Update the usage; later events repeat it and may correct it."""
        usage = getattr(event, "usage", None)
        if usage is not None:
            self._usage = {**(self._usage or {}), **_drop_nulls(as_dict(usage))}


def _merge_delta(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Collect deltas that are only sent back with the next request (signatures, citations, compaction)."""
    for name, value in delta.items():
        if name == "type":
            continue
        if name == "citation":
            block["citations"] = [*(block.get("citations") or ()), value]
        elif isinstance(value, str) and isinstance(block.get(name), str):
            block[name] += value
        elif value is not None:
            block[name] = value


def _import_sdk() -> Any:
    try:
        import anthropic
    except ImportError as error:
        raise MissingExtraError("anthropic", "anthropic", "AnthropicModel") from error
    return anthropic


class AnthropicModel(ProviderModel):
    """Claude models.

    The key is `api_key` or ANTHROPIC_API_KEY. `cache=True` marks the tools, the system prompt and the conversation for
    Anthropic's prompt cache (`cache="1h"`: for an hour); single parts are marked by `meta={"cache_control": ...}`.

    >>> AnthropicModel("claude-sonnet-5", backup_models=["claude-haiku-5-5"], config={"temperature": 0})
    AnthropicModel('claude-sonnet-5')
    """

    declaration = PROVIDER
    provider = PROVIDER.display_name

    def __init__(self, model: str, *, cache: bool | str = False, **options: Unpack[ModelOptions]) -> None:
        super().__init__(model, **options)
        self.cache = cache

    def _open_client(self, user_client: Any) -> Any:
        anthropic = _import_sdk()
        if user_client is not None:
            return disable_sdk_retries(user_client, user_client.messages.create, "anthropic.AsyncAnthropic()")
        client = anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=0,
            # Not the SDK's own HTTP client, which starts a task when it is garbage-collected.
            http_client=anthropic.DefaultAsyncHttpxClient(),
        )
        if not (client.api_key or client.auth_token or getattr(client, "credentials", None)):
            raise MissingKeyError(self.provider, PROVIDER.key_variables)
        return client

    def _build_arguments(self, model: str, request: ChatRequest) -> dict[str, Any]:
        body, config = encode(model, request, default_max_tokens=DEFAULT_MAX_TOKENS, cache=self.cache)
        return build_arguments(body, config, self.timeout)

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        arguments = self._build_arguments(model, request)
        if arguments["max_tokens"] <= STREAM_ABOVE_TOKENS:
            return decode(await idle_timeout.wait(self.client.messages.create(**arguments)), self.provider, model)
        return await super()._complete_once(model, request, idle_timeout)

    async def _stream_once(
        self, model: str, request: ChatRequest, idle_timeout: IdleTimeout
    ) -> AsyncIterator[ReplyDelta]:
        stream = await idle_timeout.wait(
            self.client.messages.create(**self._build_arguments(model, request), stream=True)
        )
        watch_bytes(stream.response, lambda _: idle_timeout.reset())
        async with stream:
            async for delta in read_stream(
                idle_timeout.iterate(stream), AnthropicStreamReader(self.provider, model), model
            ):
                yield delta

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        import anthropic

        return error_from_sdk(anthropic, error, self.provider, model)
