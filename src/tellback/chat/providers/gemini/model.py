"""Google's Gemini API: `GeminiModel`, and the encoding of messages, replies and streams."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack
from weakref import WeakKeyDictionary

from tellback.chat.model import ChatRequest, ModelOptions
from tellback.chat.output import append_schema_instructions
from tellback.chat.providers.base import IdleTimeout, ProviderModel, StreamReader, close_iterator, read_stream
from tellback.chat.providers.errors import error_from_status, error_from_transport, unreadable_response_error
from tellback.chat.providers.gemini import PROVIDER
from tellback.chat.providers.media import (
    EARLIER_TEXT,
    HISTORY_OMITTED,
    decode_base64,
    generate_call_id,
    get_inline_data,
    merge_turns,
    split_system_messages,
)
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
from tellback.types.jsontext import dump_json

META_KEY = "gemini"

PLACEHOLDER_SIGNATURE = b"skip_thought_signature_validator"
"""Google's placeholder for the missing signature of a call that the model (Gemini 3 or later) did not make itself."""

_DEFAULT_MIMES = {"image": "image/png", "audio": "audio/mpeg", "file": "application/octet-stream"}

STOP_REASONS = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"), "refusal"
    ),
}

_CLOUD_VARIABLES = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


def parts_to_meta(parts: Sequence[Mapping[str, Any]], calls: Sequence[ToolCall]) -> Mapping[str, Any] | None:
    """Build a message's `meta` for these parts, as JSON values, or None if text and calls are enough."""
    if all(
        not part.get("thought_signature") and set(part) <= {"text", "thought", "function_call"} for part in parts
    ) and not any((part.get("function_call") or {}).get("id") for part in parts):
        return None
    stored_parts = []
    for part in parts:
        # Summaries of thoughts are for people; Gemini needs only its signatures back.
        if part.get("thought") and not part.get("thought_signature"):
            continue
        stored_parts.append({name: _to_json(value) for name, value in part.items()})
    return {META_KEY: {"parts": stored_parts, "calls": [call.id for call in calls]}}


def parts_from_meta(message: Message) -> list[dict[str, Any]] | None:
    """Return the original parts, or None if the message was changed since."""
    state = (message.meta or {}).get(META_KEY)
    if not state:
        return None
    earlier = (message.meta or {}).get(EARLIER_TEXT)
    parts = [{"text": earlier}, *state["parts"]] if earlier else state["parts"]
    text = "".join(part.get("text") or "" for part in parts if not part.get("thought"))
    if text != message_text(message) or state["calls"] != [call.id for call in message.tool_calls]:
        return None
    return [{name: _from_json(name, value) for name, value in part.items()} for part in parts]


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return value


def _from_json(name: str, value: Any) -> Any:
    if name == "thought_signature":
        return base64.b64decode(value)
    if name == "inline_data":
        return {**value, "data": base64.b64decode(value["data"])}
    return value


def encode(model: str, request: ChatRequest) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Build the contents and the config of `generate_content`."""
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
            # Older models reject a schema together with tools.
            system = append_schema_instructions(system, request.output_schema)
        else:
            config["response_mime_type"] = "application/json"
            config["response_json_schema"] = dict(request.output_schema)
    if system:
        config["system_instruction"] = system
    config["automatic_function_calling"] = {"disable": True}
    return encode_messages(messages, model), config


def encode_messages(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    """Encode contents with alternating roles; the results of one reply's calls share one content."""
    names: dict[str, str] = {}
    wire_ids: set[str] = set()
    signature = PLACEHOLDER_SIGNATURE if is_gemini_3_or_later(model) else None

    def encode_message(message: Message) -> tuple[str, list[dict[str, Any]]]:
        if message.role == "tool":
            return "user", [_encode_result(message, names, wire_ids)]
        if message.role != "assistant":
            return "user", _encode_user_parts(message)
        names.update((call.id, call.name) for call in message.tool_calls)
        parts = parts_from_meta(message)
        if parts is None:
            return "model", _encode_model_parts(message, signature)
        wire_ids.update(part["function_call"].get("id") for part in parts if part.get("function_call"))
        return "model", parts

    turns = merge_turns(map(encode_message, messages), {"text": HISTORY_OMITTED})
    return [{"role": role, "parts": parts} for role, parts in turns]


def is_gemini_3_or_later(model: str) -> bool:
    """Whether the model is Gemini 3 or later, which checks signatures and accepts a schema together with tools."""
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
    if id in wire_ids:  # Gemini does not know ids that we generated
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


class GeminiStreamReader(StreamReader):
    """The state of one call's stream. Gemini sends no closing event: the stream just ends."""

    def __init__(self, provider: str, model: str) -> None:
        super().__init__(provider, model)
        self._finish_reason: str | None = None
        self._block_reason: str | None = None
        self._parts: list[dict[str, Any]] = []
        self._calls: list[ToolCall] = []

    @property
    def is_complete(self) -> bool:
        return self._finish_reason is not None or self._block_reason is not None

    def add(self, response: Any) -> Iterator[ReplyDelta]:
        self._model = response.model_version or self._model
        if response.usage_metadata is not None:
            self._usage = response.usage_metadata.model_dump(exclude_none=True)
        feedback = response.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            self._block_reason = _enum_value(feedback.block_reason)
        candidate = next(iter(response.candidates or ()), None)
        if candidate is None:
            return
        if candidate.finish_reason is not None:
            self._finish_reason = _enum_value(candidate.finish_reason)
        for part in (candidate.content.parts if candidate.content is not None else None) or ():
            yield from self._add_part(part)

    def _add_part(self, part: Any) -> Iterator[ReplyDelta]:
        raw = part.model_dump(exclude_none=True)
        if part.function_call is not None:
            call = ToolCall(
                part.function_call.id or generate_call_id("gemini"),
                part.function_call.name or "",
                part.function_call.args or {},
            )
            self._calls.append(call)
            self._parts.append(raw)
            yield ToolUseStart(call.id, call.name)
            yield ToolUseInputDelta(call.id, dump_json(call.input))
            yield ToolUseEnd(call.id)
            return
        last = self._parts[-1] if self._parts else None
        if last is not None and _continues_part(last, raw):
            last.update(raw, text=last["text"] + raw["text"])
        else:
            self._parts.append(raw)
        if part.text:
            yield self._record(ThinkingDelta(part.text) if part.thought else TextDelta(part.text))

    def reply(self) -> ChatReply:
        raw = {"finish_reason": self._finish_reason, "block_reason": self._block_reason}
        return self._build_reply(self._calls, self._stop_reason(), raw, parts_to_meta(self._parts, self._calls))

    def _stop_reason(self) -> str:
        if self._calls and self._finish_reason in ("STOP", None):
            return "tool_use"
        if self._finish_reason is None:
            return "refusal" if self._block_reason else "end_turn"
        return STOP_REASONS.get(self._finish_reason, self._finish_reason)


def _continues_part(last: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Whether a part continues the text of the previous one, which has no signature yet."""
    return (
        "text" in last
        and "text" in part
        and last.get("thought") == part.get("thought")
        and "thought_signature" not in last
        and set(part) <= {"text", "thought", "thought_signature"}
    )


def _enum_value(value: Any) -> str:
    return str(getattr(value, "value", value))


def decode(response: Any, provider: str, model: str) -> ChatReply:
    """Decode a whole response."""
    reader = GeminiStreamReader(provider, model)
    reply = reader.read(response)
    if not response.candidates and not reader.is_complete:
        raise unreadable_response_error(provider, model, "it has no candidates and no reason for that")
    return replace(reply, raw=response)


def build_config(config_class: Any, config: dict[str, Any], timeout: float) -> Any:
    """Build the SDK's config of a request; raises `ConfigurationError` for unknown fields."""
    from pydantic import ValidationError

    # Disable the SDK's own retries. Its timeout must be longer than ours.
    http_options = {"retry_options": {"attempts": 1}, "timeout": round((timeout + 30) * 1000)}
    try:
        return config_class.model_validate(
            {**config, "http_options": {**http_options, **config.get("http_options", {})}}
        )
    except ValidationError as error:
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise ConfigurationError(
            f"Gemini does not support {fields}: see google-genai's {config_class.__name__}."
        ) from error


class GeminiModel(ProviderModel):
    """Gemini models. The key is `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY; for Google Cloud, pass `client=`.

    >>> GeminiModel("gemini-2.5-flash", config={"temperature": 0})
    GeminiModel('gemini-2.5-flash')
    """

    declaration = PROVIDER
    provider = PROVIDER.display_name

    def __init__(self, model: str = PROVIDER.default_model, **options: Unpack[ModelOptions]) -> None:
        super().__init__(model, **options)
        self._http_clients: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def _open_client(self, user_client: Any) -> Any:
        try:
            import httpx2
            from google import genai
        except ImportError as error:
            raise MissingExtraError("google-genai", "gemini", "GeminiModel") from error
        if user_client is not None:
            return user_client
        key = self._api_key or next(filter(None, map(os.environ.get, PROVIDER.key_variables)), None)
        if not key and not any(map(os.environ.get, _CLOUD_VARIABLES)):
            raise MissingKeyError(self.provider, PROVIDER.key_variables)
        # If aiohttp is installed, the SDK would use it, but it behaves differently when a request is cancelled.
        http_client = httpx2.AsyncClient(follow_redirects=True)
        client = genai.Client(
            api_key=key,
            http_options=genai.types.HttpOptions(base_url=self._base_url, httpx_async_client=http_client),
        )
        self._http_clients[client] = http_client
        return client

    async def _close_client(self, client: Any) -> None:
        await client.aio.aclose()
        client.close()
        await self._http_clients.pop(client).aclose()  # the SDK does not close a client that was passed to it

    def _build_arguments(self, model: str, request: ChatRequest) -> dict[str, Any]:
        from google.genai import types

        contents, config = encode(model, request)
        return {
            "model": model,
            "contents": contents,
            "config": build_config(types.GenerateContentConfig, config, self.timeout),
        }

    @property
    def _models(self) -> Any:
        client = self.client
        return getattr(client, "aio", client).models

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        response = await idle_timeout.wait(self._models.generate_content(**self._build_arguments(model, request)))
        return decode(response, self.provider, model)

    async def _stream_once(
        self, model: str, request: ChatRequest, idle_timeout: IdleTimeout
    ) -> AsyncIterator[ReplyDelta]:
        responses = await idle_timeout.wait(
            self._models.generate_content_stream(**self._build_arguments(model, request))
        )
        try:
            async for delta in read_stream(
                idle_timeout.iterate(responses), GeminiStreamReader(self.provider, model), model
            ):
                yield delta
        finally:
            await close_iterator(responses)

    async def request_embeddings(
        self, texts: list[str], dimensions: int | None, query: bool, idle_timeout: IdleTimeout
    ) -> Any:
        from google.genai import types

        config: dict[str, Any] = dict(self.config)
        if dimensions:
            config["output_dimensionality"] = dimensions
        if "gemini-embedding-2" in self.model:
            # It ignores task types; the task must be part of the text.
            instruction = "task: search result | query: " if query else "title: none | text: "
            texts = [instruction + text for text in texts]
        else:
            config.setdefault("task_type", "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT")
        request_config = build_config(types.EmbedContentConfig, config, self.timeout)
        # Pass contents, not texts: the SDK would join several texts into one content, and so return one vector.
        contents = [types.Content(role="user", parts=[types.Part(text=text)]) for text in texts]
        # Google Cloud accepts one content per request.
        groups = [[content] for content in contents] if getattr(self.client, "vertexai", False) else [contents]
        values = []
        for group in groups:
            try:
                response = await idle_timeout.wait(
                    self._models.embed_content(model=self.model, contents=group, config=request_config)
                )
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # The SDK reads the response without checking its shape.
                problem = f"{type(error).__name__}: {error}"
                raise unreadable_response_error(self.provider, self.model, problem) from error
            values += [embedding.values for embedding in response.embeddings or ()]
        return values

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        from google.genai import errors
        from pydantic import ValidationError

        if isinstance(error, errors.APIError):
            return error_from_status(
                *(self.provider, model, error.code if isinstance(error.code, int) else None),
                error.message or str(error),
                headers=getattr(error.response, "headers", None),
                body=error.details,
                retry_after=_parse_retry_delay(error.details),
            )
        if isinstance(error, (errors.UnknownApiResponseError, ValidationError)):
            return unreadable_response_error(self.provider, model, error)
        return error_from_transport(self.provider, model, error)


def _parse_retry_delay(body: Any) -> float | None:
    """Parse the seconds of the RetryInfo in an error's details."""
    inner = body.get("error", body) if isinstance(body, Mapping) else {}
    for detail in (inner.get("details") if isinstance(inner, Mapping) else None) or ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and (seconds := re.fullmatch(r"(\d+(?:\.\d+)?)s", delay)):
            return float(seconds[1])
    return None
