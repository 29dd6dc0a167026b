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
    find_instructions,
    user_message,
)
from tellback.types.jsontext import parse_arguments

SCRIPTED_READING = "scripted reading"
"""The `raw` of a reply that stands for a correct reading of a message, such as `understands(...)` in a test: its values
are not compared with the words of the message."""

Messages = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]
ToolEntry = Tool | Callable[..., Any]


class ReplyBuilder:
    """Builds a reply from the deltas of a stream.

    >>> builder = ReplyBuilder()
    >>> for delta in (TextDelta("Hel"), TextDelta("lo!"), StreamStop("end_turn")):
    ...     builder.add(delta)
    >>> builder.stopped, builder.reply().text
    (True, 'Hello!')
    """

    __slots__ = ("_inputs", "_names", "_stop", "_text", "_thinking", "_unfinished")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._names: dict[str, str] = {}
        self._inputs: dict[str, list[str]] = {}
        self._unfinished: set[str] = set()
        self._stop: StreamStop | None = None

    def add(self, delta: object) -> None:
        """Add the next delta; unknown kinds are ignored."""
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
        """Whether the stream's last delta was added."""
        return self._stop is not None

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._text)

    def reply(self) -> ChatReply:
        """Return the reply. A reply that the stream itself built is preferred, since it has the provider's state."""
        stop = self._stop
        if stop is not None and stop.reply is not None:
            return stop.reply
        calls = []
        for id, name in self._names.items():
            text = "".join(self._inputs.get(id, ()))
            value, invalid = parse_arguments(text)
            if stop is None and id in self._unfinished:
                value, invalid = {}, text  # the stream broke off within this call
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
    """One call to a model, in a form independent of the provider.

    `tool_choice` is "auto", "none", "required" or a tool's name. `output_schema` requests JSON with this schema.
    `config` is sent to the provider unchanged (temperature, for example).

    A model of your own gets one in a test:

    >>> from tellback.types import user_message
    >>> request = ChatRequest((user_message("Hi"),), system="Be kind.", max_output_tokens=100)
    >>> request.messages[0].role, request.tools
    ('user', ())
    """

    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: str | None = None
    max_output_tokens: int | None = None
    output_schema: Mapping[str, Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def instructions(self) -> str:
        """The instructions for this request at the end of the newest user message, which an agent adds; else ''."""
        return find_instructions(self.messages)


@runtime_checkable
class Model(Protocol):
    """Anything that answers chat requests: a provider's adapter, a local model, a scripted model in tests.

    `complete` returns the whole reply. `stream` yields deltas in order, the last one a `StreamStop`. Closing the
    iterator or cancelling the task that reads it ends the call. Both raise `ProviderError` if the provider fails. Both
    accept the other fields of `ChatRequest` as keywords (`tool_choice`, `max_output_tokens`, `output_schema`,
    `config`), and any provider-specific configuration.

    >>> import asyncio
    >>> from tellback.testing import FunctionModel
    >>> from tellback.types import user_message
    >>> model = FunctionModel(lambda messages: "Hello!")
    >>> isinstance(model, Model), asyncio.run(model.complete([user_message("Hi")])).text
    (True, 'Hello!')
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
    """The keyword arguments of every adapter and embedder; see `ProviderModel`."""

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
    """The keyword arguments of `open_model`: the options of all models and of individual providers."""

    cache: bool | str
    site_url: str | None
    site_name: str | None
    context: int
    threads: int | None
    chat_template: str | None


class ModelBase:
    """A base class of models: a subclass writes `_complete(request)` and `_stream(request)`.

    >>> import asyncio
    >>> from tellback.types import reply_deltas
    >>> class Echo(ModelBase):
    ...     model, provider = "echo-1", "echo"
    ...     async def _complete(self, request: ChatRequest) -> ChatReply:
    ...         return ChatReply(f"You said: {request.messages[-1].content}")
    ...     async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
    ...         for delta in reply_deltas(await self._complete(request)):
    ...             yield delta
    >>> asyncio.run(Echo().complete("Hi")).text
    'You said: Hi'
    """

    model: str
    provider: str

    async def complete(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> ChatReply:
        """Send a request and return the whole reply."""
        return await self._complete(build_request(messages, system, tools, options))

    def stream(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> AsyncIterator[ReplyDelta]:
        """Send a request and yield deltas; the last one is a `StreamStop` with the whole reply."""
        return self._stream(build_request(messages, system, tools, options))

    async def chat_fn(
        self, model: str, messages: Messages, system: str | None, tools: Sequence[ToolEntry] | None, **options: Any
    ) -> ChatReply:
        """Call this model with the signature of `ChatOptions.chat_fn`; the model name is ignored."""
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
        """Call this model with the signature of `ChatOptions.chat_stream_fn`; the model name is ignored."""
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
        """Close the model's connections; an adapter without connections does nothing."""

    async def _complete(self, request: ChatRequest) -> ChatReply:
        raise NotImplementedError

    def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        raise NotImplementedError


def build_request(
    messages: Messages, system: str | None, tools: Sequence[ToolEntry] | None, options: Mapping[str, Any]
) -> ChatRequest:
    """Build a request from the arguments of `complete` or `stream`."""
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
    """Close a stream immediately; an abandoned async generator is closed only later."""
    close = getattr(deltas, "aclose", None)
    if close is not None:
        await close()


def as_messages(messages: Messages) -> tuple[Message, ...]:
    """Convert a text, one message or several messages (or mappings) to a tuple of messages."""
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
