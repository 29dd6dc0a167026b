"""What a model is: something that answers chat requests, at once or as a stream."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tellback.chat.assemble import ReplyBuilder
from tellback.tools import Tool, as_tool
from tellback.types import ChatReply, Message, ReplyDelta, as_message, user_message

Messages = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]
ToolEntry = Tool | Callable[..., Any]


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
