"""One model call, by whichever way the options name: an explicit function, a model object, or the registry."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from tellback.chat.assemble import ReplyBuilder
from tellback.chat.budget import check_budget
from tellback.chat.functions import FunctionCaller, as_reply
from tellback.chat.model import Messages, Model, ToolEntry, as_messages, close_stream
from tellback.chat.observing import ChatCaller, TracedCaller
from tellback.chat.options import ChatOptions
from tellback.chat.output import OutputSpec
from tellback.chat.registry import get_builtin_adapter, resolve_registration
from tellback.chat.sink import DeltaSink, OnDelta
from tellback.errors import ConfigurationError
from tellback.telemetry import tracer
from tellback.tools import Tool, as_tool
from tellback.types import ChatReply, Message, ReplyDelta


async def dispatch_chat(opts: ChatOptions, messages: Messages, tools: Sequence[ToolEntry] | None = None) -> ChatReply:
    """One call: `opts.chat_fn` if there is one, else the model object, else the provider registered for the name.

    >>> import asyncio
    >>> from tellback.types import user_message
    >>> async def hello(model, messages, system, tools): return "Hello!"
    >>> asyncio.run(dispatch_chat(ChatOptions(chat_fn=hello), [user_message("Hi")], [])).text
    'Hello!'
    """
    messages, tool_list = as_messages(messages), _as_tools(tools)
    check_budget(opts, messages, tool_list)
    return await resolve_caller(opts).complete(messages, opts.system, tool_list, call_settings(opts))


async def dispatch_chat_stream(
    opts: ChatOptions,
    messages: Messages,
    tools: Sequence[ToolEntry] | None = None,
    on_delta: OnDelta | None = None,
) -> ChatReply:
    """One streamed call; `on_delta` gets every delta. A provider that cannot stream gives its reply as a few deltas.

    >>> import asyncio
    >>> from tellback.types import user_message
    >>> async def hello(model, messages, system, tools): return "Hello!"
    >>> seen = []
    >>> reply = asyncio.run(dispatch_chat_stream(ChatOptions(chat_fn=hello), [user_message("Hi")], [], seen.append))
    >>> seen[0]
    TextDelta(text='Hello!')
    """
    messages, tool_list = as_messages(messages), _as_tools(tools)
    check_budget(opts, messages, tool_list)
    sink = DeltaSink(opts, on_delta)
    return await resolve_caller(opts).stream_to(messages, opts.system, tool_list, call_settings(opts), sink)


def call_settings(opts: ChatOptions) -> dict[str, Any]:
    """What goes to the model beside messages, system prompt and tools: only what is set."""
    settings: dict[str, Any] = {"config": dict(opts.config)} if opts.config else {}
    if opts.max_output_tokens is not None:
        settings["max_output_tokens"] = opts.max_output_tokens
    if opts.tool_choice is not None:
        settings["tool_choice"] = opts.tool_choice
    if opts.output_type is not None:
        settings["output_schema"] = OutputSpec.from_type(opts.output_type).schema
    return settings


def resolve_caller(opts: ChatOptions) -> ChatCaller:
    """Whoever answers: an explicit function first, then a model object, then the provider registered for the name.

    When somebody wants spans, each of its calls is one.
    """
    caller, provider = _resolve_caller_and_provider(opts)
    return caller if tracer() is None else TracedCaller(caller, opts.model_name, provider)


def _resolve_caller_and_provider(opts: ChatOptions) -> tuple[ChatCaller, str | None]:
    """Who answers, and the provider's name, if it is known."""
    name = opts.model_name
    if opts.chat_fn is not None or opts.chat_stream_fn is not None:
        return FunctionCaller(name, opts.chat_fn, opts.chat_stream_fn), None
    if not isinstance(opts.model, str):
        return ModelCaller(opts.model), getattr(opts.model, "provider", None)
    registration = resolve_registration(opts)
    adapter = get_builtin_adapter(registration)
    if adapter is not None:
        return ModelCaller(adapter.model(name)), registration.display_name
    if registration.chat_fn is None and registration.chat_stream_fn is None:
        raise ConfigurationError(
            f"{registration.display_name} is registered for {name!r} but has no chat_fn:"
            " pass ChatOptions(chat_fn=...), or register it with ProviderRegistration(..., chat_fn=...)."
        )
    return FunctionCaller(name, registration.chat_fn, registration.chat_stream_fn), registration.display_name


class ModelCaller:
    """Calls a model object."""

    __slots__ = ("_model",)

    def __init__(self, model: Model) -> None:
        self._model = model

    async def complete(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> ChatReply:
        """The whole reply."""
        return as_reply(await self._model.complete(messages, system, tools, **settings))

    async def stream(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ReplyDelta | ChatReply, None]:
        """The deltas, then the whole reply."""
        builder = ReplyBuilder()
        deltas = self._model.stream(messages, system, tools, **settings)
        try:
            async for delta in deltas:
                builder.add(delta)
                yield delta
        finally:
            await close_stream(deltas)
        yield as_reply(builder.reply())

    async def stream_to(
        self,
        messages: Sequence[Message],
        system: str | None,
        tools: Sequence[Tool],
        settings: Mapping[str, Any],
        sink: DeltaSink,
    ) -> ChatReply:
        """The whole reply, its deltas given to `sink` as they come."""
        builder = ReplyBuilder()
        deltas = self._model.stream(messages, system, tools, **settings)
        try:
            async for delta in deltas:
                builder.add(delta)
                sink(delta)
                if sink.has_pending:
                    await sink.flush()
        finally:
            await close_stream(deltas)
        return as_reply(builder.reply())


def _as_tools(tools: Sequence[ToolEntry] | None) -> tuple[Tool, ...]:
    return tuple(map(as_tool, tools)) if tools else ()
