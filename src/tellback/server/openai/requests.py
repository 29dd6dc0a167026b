"""Schemas of OpenAI's chat completions API, and the conversion of requests to turns."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tellback.chat.options import ChatOptionsDict
from tellback.chat.registry import BuiltinProvider, builtin_providers, detect_provider_from, find_builtin_provider
from tellback.errors import InvalidArgumentError
from tellback.server.client_tools import build_client_tools
from tellback.server.openai.errors import ErrorOut, InvalidFieldError, unsupported_field
from tellback.tools import Tool
from tellback.types import (
    Message,
    MessagePart,
    ToolCall,
    as_tool_call,
    assistant_message,
    audio_part,
    file_part,
    image_part,
    message_text,
    text_part,
    user_message,
)
from tellback.types.messages import split_data_url
from tellback.wire.messages import is_allowed_url
from tellback.wire.turns import ToolIn

MAX_MESSAGES = 2_000
MAX_PARTS = 1_000
MAX_TOOLS = 512

Id = Annotated[str, Field(max_length=500)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]

STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The completion, or with `stream` its chunks as server-sent events, ending with `[DONE]`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}

_DESCRIPTIONS = {
    400: "The request is invalid; `param` is the field.",
    401: "The API key is missing or invalid.",
    403: "The key may not act for this user.",
    404: "The model or conversation does not exist.",
    409: "The conversation is closed, or another turn is running.",
    413: "The body or one of its texts is too large.",
    429: "Too many requests; retry after Retry-After seconds.",
    502: "The model provider failed.",
    503: "The store or the provider is temporarily unavailable.",
    504: "The model provider timed out.",
}

_AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}

MAX_MODEL_CALLS = 4
"""The limit of model calls per turn. More than one call is only needed to correct invalid tool calls."""

_HINTS = ("seed", "parallel_tool_calls", "reasoning_effort")
"""Settings that are dropped if the provider does not support them, because they are only hints."""
_SETTINGS = ("temperature", "top_p", "stop", "presence_penalty", "frequency_penalty", "logit_bias", *_HINTS)


class LenientModel(BaseModel):
    """A part of a request. Unknown fields are ignored, because clients send more than we support."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class ChatMessage(LenientModel):
    """A message of the client's history."""

    role: str = Field(max_length=50, examples=["user"])
    content: str | Annotated[list[dict[str, Any]], Field(max_length=MAX_PARTS)] | None = Field(
        default=None, examples=["Where should we eat tonight?"]
    )
    name: Id | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_call_id: Id | None = None


class StreamOptions(LenientModel):
    """Options of a streamed response."""

    include_usage: bool | None = Field(default=None, description="Send a last chunk with the token usage.")


class CompletionRequest(LenientModel):
    """A chat completion request. Unknown fields are ignored."""

    model: str = Field(min_length=1, max_length=200, examples=["tellback"])
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: Id | None = Field(default=None, description="The user's id; required if the key is valid for any user.")
    metadata: dict[Id, Id] | None = Field(default=None, max_length=16, description="Metadata of the message.")
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stop: Id | Annotated[list[Id], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[Id, float] | None = Field(default=None, max_length=1_000)
    reasoning_effort: Annotated[str, Field(max_length=50)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    modalities: list[Id] | None = Field(default=None, max_length=16)
    audio: dict[str, Any] | None = None
    functions: list[Any] | None = Field(default=None, max_length=MAX_TOOLS)
    function_call: Any = None
    web_search_options: dict[str, Any] | None = None


class FunctionOut(BaseModel):
    """A function call."""

    name: str = Field(examples=["get_weather"])
    arguments: str = Field(examples=['{"city":"Lisbon"}'], description="The arguments as JSON text.")


class CallOut(BaseModel):
    """A tool call that the client must run."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionOut


class ReplyOut(BaseModel):
    """The assistant's message."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(examples=["You wanted to try the place by the river."])
    refusal: str | None = None
    tool_calls: list[CallOut] | None = None


class ChoiceOut(BaseModel):
    """The only choice."""

    index: int = 0
    message: ReplyOut
    logprobs: None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]


class UsageOut(BaseModel):
    """The token usage."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None


class CompletionOut(BaseModel):
    """A chat completion. With `stream`, it is sent in chunks as server-sent events, ending with `[DONE]`."""

    id: str = Field(examples=["chatcmpl-018f3c0de0a17b2c4d5e6f708192"])
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChoiceOut]
    usage: UsageOut | None = None
    system_fingerprint: str | None = None


class ModelOut(BaseModel):
    """A model that requests may use."""

    id: str = Field(examples=["tellback"])
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "tellback"


class ModelListOut(BaseModel):
    """The models that requests may use."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI descriptions of a route's error responses."""
    all_statuses = sorted({400, 401, 403, 413, 429, 503, *statuses})
    return {status: {"model": ErrorOut, "description": _DESCRIPTIONS[status]} for status in all_statuses}


@dataclass(frozen=True, slots=True)
class ParsedChat:
    """A parsed request. `new` has the messages after the last assistant message, without system messages."""

    system: str | None
    messages: tuple[Message, ...]
    new: tuple[Message, ...]
    speaker: str | None = None

    @property
    def tool_results(self) -> tuple[Message, ...]:
        """The new tool results."""
        return tuple(message for message in self.new if message.role == "tool")

    @property
    def user_messages(self) -> tuple[Message, ...]:
        """The user's new messages."""
        return tuple(message for message in self.new if message.role == "user")

    @property
    def has_history(self) -> bool:
        """Whether the client sent history, that is, assistant messages."""
        return any(message.role == "assistant" for message in self.messages)

    @property
    def last_user_text(self) -> str:
        """The user's last text, used as the recall query."""
        return next((text_of_parts(each) for each in reversed(self.messages) if each.role == "user"), "")


def parse_messages(inputs: Sequence[ChatMessage]) -> ParsedChat:
    """Parse the messages. Errors contain the path of the invalid field."""
    messages = [_parse_message(message, f"messages.{number}") for number, message in enumerate(inputs)]
    first_turn = next((number for number, each in enumerate(messages) if each.role != "system"), len(messages))
    turns = _name_tool_results(messages[first_turn:])
    if not turns:
        raise InvalidFieldError("messages", "`messages` contains only system messages: add a user message.")
    last = max((number for number, each in enumerate(turns) if each.role == "assistant"), default=-1)
    new = tuple(each for each in turns[last + 1 :] if each.role != "system")
    if last >= 0 and new:
        _require_tool_results(turns[last], new)
    return ParsedChat(
        system="\n\n".join(filter(None, map(message_text, messages[:first_turn]))) or None,
        messages=tuple(turns),
        new=new,
        speaker=next((each.name for each in reversed(inputs) if each.role == "user"), None),
    )


def text_of_parts(message: Message) -> str:
    """Return the text of a user's message, without attachments."""
    if not message.parts:
        return message_text(message)
    return "\n\n".join(part.text for part in message.parts if part.kind == "text" and part.text)


def get_attachments(message: Message) -> tuple[MessagePart, ...]:
    """Return the images, audio and files of a message."""
    return tuple(part for part in message.parts or () if part.kind != "text")


def _parse_message(message: ChatMessage, at: str) -> Message:
    match message.role:
        case "system" | "developer":
            return Message("system", _parse_text(message.content, f"{at}.content"))
        case "user":
            return _parse_user_message(message, f"{at}.content")
        case "assistant":
            return _parse_assistant_message(message, at)
        case "tool":
            if not message.tool_call_id:
                raise InvalidFieldError(f"{at}.tool_call_id", "A tool message needs the tool_call_id of its call.")
            return Message("tool", _parse_text(message.content, f"{at}.content"), tool_call_id=message.tool_call_id)
        case "function":
            raise unsupported_field(
                f"{at}.role", "functions are deprecated; use `tools`, and messages of the role `tool`."
            )
    known = "system, developer, user, assistant or tool"
    raise InvalidFieldError(f"{at}.role", f"role must be {known}, got {message.role!r}.")


def _parse_user_message(message: ChatMessage, at: str) -> Message:
    if message.content is None or isinstance(message.content, str):
        return user_message(message.content or "")
    if not message.content:
        raise InvalidFieldError(at, "content must have at least one part.")
    parts = [_parse_part(part, f"{at}.{number}") for number, part in enumerate(message.content)]
    if all(part.kind == "text" for part in parts):
        return user_message("\n\n".join(part.text or "" for part in parts))
    return user_message(parts)


def _parse_assistant_message(message: ChatMessage, at: str) -> Message:
    text = _parse_text(message.content, f"{at}.content") or message.refusal or ""
    calls = [
        _parse_tool_call(call, f"{at}.tool_calls.{number}") for number, call in enumerate(message.tool_calls or ())
    ]
    return assistant_message(text, calls)


def _parse_tool_call(call: Mapping[str, Any], at: str) -> ToolCall:
    match call:
        case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}} if id and name:
            return as_tool_call({"id": id, "function": {"name": name, "arguments": arguments}})
    raise InvalidFieldError(at, "A tool call needs an id and a function with a name and JSON text as arguments.")


def _parse_text(content: str | list[dict[str, Any]] | None, at: str) -> str:
    """Return the text of a message that may only contain text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case _:
                raise InvalidFieldError(f"{at}.{number}", "Only user messages may have parts other than text.")
    return "\n\n".join(texts)


def _parse_part(part: Mapping[str, Any], at: str) -> MessagePart:
    match part:
        case {"type": "text", "text": str(text)}:
            return text_part(text)
        case {"type": "image_url", "image_url": {"url": str(url), **extra}}:
            detail = extra.get("detail")
            meta = {"detail": detail} if isinstance(detail, str) and len(detail) < 20 else None
            return image_part(url=_validate_url(url, at), mime=_media_type(url, "image/png"), meta=meta)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(format)}} if len(format) < 50:
            return audio_part(data=_validate_base64(data, at), mime=_AUDIO_TYPES.get(format, f"audio/{format}"))
        case {"type": "file", "file": {"file_data": str(data), **extra}}:
            return _parse_file(data, extra.get("filename"), at)
        case {"type": "file"}:
            raise unsupported_field(at, "uploaded files are not supported; send the content as `file_data`.")
    raise InvalidFieldError(at, "A part must be text, image_url, input_audio or file, with the field of that name.")


def _parse_file(data: str, name: Any, at: str) -> MessagePart:
    filename = name if isinstance(name, str) and len(name) <= 500 else None
    if data.startswith("data:"):
        return file_part(url=_validate_url(data, at), mime=_media_type(data, "application/octet-stream"), name=filename)
    return file_part(data=_validate_base64(data, at), mime="application/pdf", name=filename)


def _validate_url(url: str, at: str) -> str:
    """Return the URL; raise unless it is a web URL or a valid data URL."""
    if url.startswith("data:"):
        _validate_base64(split_data_url(url)[1], at)
    elif not is_allowed_url(url):
        raise InvalidFieldError(at, "The URL must begin with https:// or http://, or be a data: URL.")
    return url


def _media_type(url: str, default: str) -> str | None:
    return split_data_url(url)[0] or default if url.startswith("data:") else None


def _validate_base64(data: str, at: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidFieldError(at, f"The data is not valid base64: {error}.") from None
    return data


def _name_tool_results(messages: Sequence[Message]) -> list[Message]:
    """Add the tool names to tool results, which some providers require."""
    names: dict[str | None, str] = {}
    named = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        is_result = message.role == "tool"
        named.append(replace(message, name=names.get(message.tool_call_id)) if is_result else message)
    return named


def _require_tool_results(assistant: Message, new: Sequence[Message]) -> None:
    answered = {message.tool_call_id for message in new}
    missing = [call.id for call in assistant.tool_calls if call.id not in answered]
    if missing:
        raise InvalidFieldError(
            "messages", f"Each tool call must be followed by a tool message with its result: {missing} have none."
        )


def parse_options(body: CompletionRequest, model: Any) -> ChatOptionsDict:
    """Return the turn's options, without system prompt and tools."""
    _refuse_unsupported(body)
    options: ChatOptionsDict = {
        "max_iterations": MAX_MODEL_CALLS,
        "config": _parse_settings(body, find_provider(model)),
    }
    limit = body.max_completion_tokens or body.max_tokens
    if limit is not None:
        options["max_output_tokens"] = limit
    choice = _parse_tool_choice(body)
    if choice is not None:
        options["tool_choice"] = choice
    return options


def parse_tools(body: CompletionRequest) -> list[Tool]:
    """Parse the client's tools. The client runs them, so a call ends the turn."""
    by_name: dict[str, ToolIn] = {}
    for number, tool in enumerate(body.tools or ()):
        description = _parse_tool(tool, f"tools.{number}")
        if description.name in by_name:
            raise InvalidFieldError(f"tools.{number}", f"Tool names must be unique, got {description.name!r} twice.")
        by_name[description.name] = description
    try:
        return build_client_tools([*by_name.values()])
    except InvalidArgumentError as error:
        raise InvalidFieldError("tools", str(error)) from None


def find_provider(model: Any) -> BuiltinProvider | None:
    """Return the built-in provider of a model, or None if it has none."""
    if isinstance(model, str):
        entry = detect_provider_from(builtin_providers(), model)
        name = "" if entry is None else str(entry.variant)
    else:
        name = str(getattr(model, "provider", ""))
    return find_builtin_provider(name)


def _parse_tool(tool: Mapping[str, Any], at: str) -> ToolIn:
    if tool.get("type", "function") != "function":
        raise unsupported_field(f"{at}.type", "only function tools are supported.")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InvalidFieldError(f"{at}.function", "A tool needs a function with a name.")
    fields = {name: function[name] for name in ("name", "description", "parameters") if function.get(name) is not None}
    try:
        return ToolIn(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidFieldError(f"{at}.function.{'.'.join(map(str, first['loc']))}", f"{first['msg']}.") from None


def _parse_tool_choice(body: CompletionRequest) -> str | None:
    names = {str((tool.get("function") or {}).get("name")) for tool in body.tools or ()}
    match body.tool_choice:
        case None:
            return None
        case "none" | "auto" | "required" as choice:
            if not names and choice == "required":
                raise InvalidFieldError("tool_choice", "`tool_choice` is required, but `tools` is empty.")
            return choice if names else None
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in names:
                raise InvalidFieldError("tool_choice", f"`tool_choice` is {name!r:.80}, which is not in `tools`.")
            return name
    raise unsupported_field("tool_choice", "use none, auto, required, or a function.")


def _parse_settings(body: CompletionRequest, provider: BuiltinProvider | None) -> dict[str, Any]:
    settings = {name: value for name in _SETTINGS if (value := getattr(body, name)) not in (None, [], {})}
    if not body.tools:
        settings.pop("parallel_tool_calls", None)
    supported = None if provider is None else provider.settings
    if provider is not None and "temperature" in settings:
        settings["temperature"] = min(provider.max_temperature, settings["temperature"])
    if supported is not None:
        for name in [name for name in settings if name not in supported]:
            if name not in _HINTS and settings[name]:
                raise unsupported_field(name, "the model's provider does not support it.")
            del settings[name]
        if isinstance(settings.get("stop"), str):
            settings["stop"] = [settings["stop"]]
        settings = {supported[name]: value for name, value in settings.items()}
    schema = _parse_response_format(body.response_format)
    return settings if schema is None else {**settings, "output_schema": schema}


def _parse_response_format(format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    match format:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
    raise InvalidFieldError("response_format", "`response_format` must be text, json_object or json_schema.")


def _refuse_unsupported(body: CompletionRequest) -> None:
    if body.n is not None and body.n != 1:
        raise unsupported_field("n", "only one choice is supported, so `n` must be 1.")
    if body.logprobs or body.top_logprobs:
        raise unsupported_field("logprobs", "not all providers return them.")
    if body.audio is not None or set(body.modalities or ()) - {"text"}:
        raise unsupported_field("modalities", "only text is supported.")
    if body.functions or body.function_call is not None:
        raise unsupported_field("functions", "use `tools`.")
    if body.web_search_options is not None:
        raise unsupported_field("web_search_options", "the server does not search the web.")
