"""The `Model` protocol, the `ChatRequest` it answers, and the builder that turns a stream's deltas into a reply."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, runtime_checkable

from tellback.tools import Tool, as_tool
from tellback.types import (
    ChatReply,
    Message,
    ReplyDelta,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
    as_message,
    user_message,
)
from tellback.types.jsontext import parse_arguments

Messages = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]
ToolEntry = Tool | Callable[..., Any]


class ReplyBuilder:
    """Collects deltas; `reply()` is what they add up to."""

    __slots__ = ("_inputs", "_names", "_stop", "_text", "_thinking", "_unfinished")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._names: dict[str, str] = {}
        self._inputs: dict[str, list[str]] = {}
        self._unfinished: set[str] = set()
        self._stop: StreamStop | None = None

    def add(self, delta: object) -> None:
        """Take the next delta; unknown kinds carry nothing a reply needs."""
        if type(delta) is TextDelta:  # by far the most frequent
            self._text.append(delta.text)
        elif isinstance(delta, ToolUseInputDelta):
            self._inputs.setdefault(delta.id, []).append(delta.partial_input_json)
        elif isinstance(delta, ToolUseStart):
            self._names[delta.id] = delta.name
            self._unfinished.add(delta.id)
        elif isinstance(delta, ToolUseEnd):
            self._unfinished.discard(delta.id)
        elif isinstance(delta, ThinkingDelta):
            self._thinking.append(delta.text)
        elif isinstance(delta, StreamStop):
            self._stop = delta
        elif isinstance(delta, TextDelta):
            self._text.append(delta.text)

    @property
    def stopped(self) -> bool:
        """Whether the stream's last delta has come."""
        return self._stop is not None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def reply(self) -> ChatReply:
        """The reply; the one the stream itself assembled is preferred, since it carries provider state."""
        stop = self._stop
        if stop is not None and stop.reply is not None:
            return stop.reply
        calls = []
        for id, name in self._names.items():
            text = "".join(self._inputs.get(id, ()))
            value, invalid = parse_arguments(text)
            if stop is None and id in self._unfinished:
                value, invalid = {}, text  # the stream broke off in the middle of it
            calls.append(ToolCall(id, name, value, invalid))
        return ChatReply(
            text=self.text,
            tool_calls=tuple(calls),
            stop_reason=stop.reason if stop else ("tool_use" if calls else "end_turn"),
            usage=stop.usage if stop else None,
            thinking="".join(self._thinking),
        )


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call to a model, in no provider's words.

    `tool_choice` is "auto", "none", "required" or a tool's name. `output_schema` asks for JSON of that
    schema. `config` goes to the provider as it is (temperature and the like).
    """

    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    max_output_tokens: int | None = None
    output_schema: Mapping[str, Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Model(Protocol):
    """Anything that answers chat requests: a provider's adapter, a local model, a scripted one in tests.

    `complete` gives the whole reply. `stream` gives deltas in order, the last one a `StreamStop`; closing the
    iterator or cancelling the task that reads it ends the call. Both raise `ProviderError`s when the provider
    fails, and take, by keyword, the fields of `ChatRequest` that are set (`tool_choice`, `max_output_tokens`,
    `output_schema`, `config`) and any other provider-specific configuration.
    """

    model: str
    provider: str

    async def complete(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> ChatReply: ...

    def stream(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> AsyncIterator[ReplyDelta]: ...


class ProviderOptions(TypedDict, total=False):
    """The keyword arguments of every adapter and embedder; `ProviderModel` explains them."""

    api_key: str | None
    base_url: str | None
    client: Any
    config: Mapping[str, Any] | None
    timeout: float
    retries: int


class ModelOptions(ProviderOptions, total=False):
    """The keyword arguments of every adapter."""

    backup_models: Sequence[str | Model]


class OpenModelOptions(ModelOptions, total=False):
    """The keyword arguments of `open_model`: the options of every model, and those of single providers."""

    cache: bool | str
    site_url: str | None
    site_name: str | None
    context: int
    threads: int | None
    chat_template: str | None


class ModelBase:
    """A model made of two methods: `_complete(request)` and `_stream(request)`."""

    model: str
    provider: str

    async def complete(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> ChatReply:
        """Ask, and wait for the whole reply."""
        return await self._complete(build_request(messages, system, tools, options))

    def stream(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> AsyncIterator[ReplyDelta]:
        """Ask, and get the reply as deltas, the last one a `StreamStop` that carries the whole reply."""
        return self._stream(build_request(messages, system, tools, options))

    async def chat_fn(
        self, model: str, messages: Messages, system: str | None, tools: Sequence[ToolEntry] | None, **options: Any
    ) -> ChatReply:
        """This model in the shape of `ChatOptions.chat_fn`; the name passed in is ignored."""
        return await self.complete(messages, system, tools, **options)

    async def chat_stream_fn(
        self,
        model: str,
        messages: Messages,
        system: str | None,
        tools: Sequence[ToolEntry] | None,
        on_delta: Callable[[ReplyDelta], Any],
        **options: Any,
    ) -> ChatReply:
        """This model in the shape of `ChatOptions.chat_stream_fn`; the name passed in is ignored."""
        builder = ReplyBuilder()
        deltas = self.stream(messages, system, tools, **options)
        try:
            async for delta in deltas:
                builder.add(delta)
                outcome = on_delta(delta)
                if inspect.isawaitable(outcome):
                    await outcome
        finally:
            await close_stream(deltas)
        return builder.reply()

    async def aclose(self) -> None:
        """Let go of what the model holds open; nothing, unless an adapter says otherwise."""

    async def _complete(self, request: ChatRequest) -> ChatReply:
        raise NotImplementedError

    def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        raise NotImplementedError


def build_request(
    messages: Messages, system: str | None, tools: Sequence[ToolEntry] | None, options: Mapping[str, Any]
) -> ChatRequest:
    """Bring what a caller passed to `complete` or `stream` into one value."""
    config = {**(options.get("config") or {}), **options} if options else {}
    config.pop("config", None)
    return ChatRequest(
        messages=as_messages(messages),
        system=system,
        tools=tuple(map(as_tool, tools)) if tools else (),
        tool_choice=config.pop("tool_choice", None),
        max_output_tokens=config.pop("max_output_tokens", None),
        output_schema=_resolve_output_schema(config.pop("output_schema", None)),
        config=config,
    )


async def close_stream(deltas: AsyncIterator[Any]) -> None:
    """End a stream now: leaving an async generator alone would close it only some time later."""
    close = getattr(deltas, "aclose", None)
    if close is not None:
        await close()


def as_messages(messages: Messages) -> tuple[Message, ...]:
    """A text, one message or several (mappings will do), as a tuple of messages."""
    if isinstance(messages, str):
        return (user_message(messages),)
    if isinstance(messages, Message | Mapping):
        return (as_message(messages),)
    return tuple([message if type(message) is Message else as_message(message) for message in messages])


def _resolve_output_schema(schema: Any) -> Mapping[str, Any] | None:
    if schema is None or isinstance(schema, Mapping):
        return schema
    from tellback.chat.output import OutputSpec

    return OutputSpec.from_type(schema).schema
