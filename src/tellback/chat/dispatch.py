"""Make one model call with a chat function, a model object or the registered provider.

`resolve_caller` selects the `ChatCaller`. All kinds of callers have the same methods; a `DeltaSink` receives deltas."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from tellback import events
from tellback.chat.model import Messages, Model, ReplyBuilder, ToolEntry, as_messages, close_stream
from tellback.chat.options import ChatOptions, check_budget
from tellback.chat.output import OutputSpec, append_schema_instructions
from tellback.chat.registry import get_builtin_adapter, resolve_registration
from tellback.chat.usage import make_usage
from tellback.errors import ConfigurationError
from tellback.telemetry import ModelSpan, model_span, tracer
from tellback.tools import Tool, as_tool
from tellback.types import ChatReply, ChatUsage, Message, ReplyDelta, StreamStop, message_text, reply_deltas

log = logging.getLogger("tellback.chat")

OnDelta = Callable[[ReplyDelta], Any]

POSITIONAL_PARAMETERS = ("model", "messages", "system", "tools", "on_delta")

_signatures: WeakKeyDictionary[Any, _FunctionSignature] = WeakKeyDictionary()


class DeltaSink:
    """The receiver of deltas: passes them to the caller's callback (sync or async) and to the run's events.

    An async callback runs in a task that processes the deltas in order. Calling the sink returns the sink, which can be
    awaited, so stream functions may write `on_delta(d)` or `await on_delta(d)`. It may be called from another thread;
    the callback still runs on the event loop. As a context manager, the sink waits at the end until the callback has
    processed all deltas; if the block is cancelled, it cancels the callback.
    """

    __slots__ = ("_event_name", "_loop", "_on_delta", "_pending", "_task", "_thread_id")

    def __init__(self, opts: ChatOptions, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._event_name = opts.delta_data_type if opts.emit_stream_deltas else None
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._pending: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, delta: ReplyDelta) -> DeltaSink:
        if threading.get_ident() != self._thread_id:
            self._loop.call_soon_threadsafe(self, delta)
            return self
        if self._event_name is not None:
            events.emit(self._event_name, delta)
        if self._on_delta is not None:
            outcome = self._on_delta(delta)
            if outcome is not None and inspect.isawaitable(outcome):
                self._pending.append(outcome)
                if self._task is None or self._task.done():
                    if self._task is not None:
                        self._task.result()  # raises the callback's earlier exception
                    self._task = asyncio.ensure_future(self._run_pending())
        return self

    def __await__(self) -> Generator[Any, Any, None]:
        if self._task is not None:
            yield from self.flush().__await__()

    async def __aenter__(self) -> DeltaSink:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            await self
        elif isinstance(error, Exception):
            try:
                await self
            except Exception as callback_error:
                if callback_error is not error:  # the first failure is raised, the second only logged
                    log.warning("The on_delta callback failed as well", exc_info=callback_error)
        else:
            self._cancel()

    @property
    def has_pending(self) -> bool:
        """Whether an async callback still has deltas to process."""
        return self._task is not None

    async def flush(self) -> None:
        """Wait until the async callback has processed all deltas; raises the callback's exceptions."""
        try:
            while self._task is not None:
                task, self._task = self._task, None
                await task
                if self._pending:
                    self._task = asyncio.ensure_future(self._run_pending())
        except BaseException:
            self._cancel()
            raise

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        while self._pending:  # they will not be awaited
            close = getattr(self._pending.popleft(), "close", None)
            if close is not None:
                close()

    async def _run_pending(self) -> None:
        while self._pending:
            await self._pending.popleft()


class CallRequest(NamedTuple):
    """One call of a model. `settings` are the fields of `ChatOptions` that are set, as `call_settings` returns them."""

    messages: Sequence[Message]
    system: str | None
    tools: Sequence[Tool]
    settings: Mapping[str, Any]


class TracedCaller:
    """A caller that creates a span for each call, as a child of the current span."""

    __slots__ = ("_caller", "_model", "_provider")

    def __init__(self, caller: ChatCaller, model: str, provider: str | None) -> None:
        self._caller = caller
        self._model = model
        self._provider = provider

    async def complete(self, call: CallRequest) -> ChatReply:
        with self._start_span(call, streaming=False) as span:
            reply = await self._caller.complete(call)
            span.finish(reply)
        return reply

    async def stream(self, call: CallRequest) -> AsyncGenerator[ReplyDelta | ChatReply, None]:
        with self._start_span(call, streaming=True) as span:
            async with contextlib.aclosing(self._caller.stream(call)) as items:
                async for item in items:
                    if isinstance(item, ChatReply):
                        span.finish(item)
                    yield item

    async def stream_to(self, call: CallRequest, sink: DeltaSink) -> ChatReply:
        with self._start_span(call, streaming=True) as span:
            reply = await self._caller.stream_to(call, sink)
            span.finish(reply)
        return reply

    def _start_span(self, call: CallRequest, *, streaming: bool) -> ModelSpan:
        model, provider = self._model, self._provider
        return model_span(
            model, provider, call.settings, messages=call.messages, system=call.system, streaming=streaming
        )


class FunctionCaller:
    """Calls the functions of `ChatOptions` or of a registration; either function is enough for both kinds of calls."""

    __slots__ = ("_chat_fn", "_chat_stream_fn", "_model")

    def __init__(
        self, model: str, chat_fn: Callable[..., Any] | None, chat_stream_fn: Callable[..., Any] | None
    ) -> None:
        self._model = model
        self._chat_fn = chat_fn
        self._chat_stream_fn = chat_stream_fn

    async def complete(self, call: CallRequest) -> ChatReply:
        if self._chat_fn is None:
            return await self._call_stream(call, lambda _: _COMPLETED)
        signature = _get_signature(self._chat_fn, 4)
        if signature.is_legacy:
            return await self._call_legacy(call)
        system, accepted = signature.select_settings(call)
        return as_reply(
            await _await_if_needed(self._chat_fn(self._model, call.messages, system, call.tools, **accepted))
        )

    async def stream(self, call: CallRequest) -> AsyncGenerator[ReplyDelta | ChatReply, None]:
        if self._chat_stream_fn is None:
            reply = await self.complete(call)
            for delta in reply_deltas(reply):
                yield delta
            yield reply
            return
        async with contextlib.aclosing(_iterate_callbacks(lambda receive: self._call_stream(call, receive))) as items:
            async for item in items:
                yield item

    async def stream_to(self, call: CallRequest, sink: DeltaSink) -> ChatReply:
        async with sink:
            if self._chat_stream_fn is not None:
                return await self._call_stream(call, sink)
            reply = await self.complete(call)
            for delta in reply_deltas(reply):
                sink(delta)
            return reply

    async def _call_stream(self, call: CallRequest, receive: Callable[[ReplyDelta], Any]) -> ChatReply:
        assert self._chat_stream_fn is not None
        system, accepted = _get_signature(self._chat_stream_fn, 5).select_settings(call)
        builder = ReplyBuilder()

        def collect(delta: ReplyDelta) -> Any:
            builder.add(delta)
            return receive(delta)

        returned = await _await_if_needed(
            self._chat_stream_fn(self._model, call.messages, system, call.tools, collect, **accepted)
        )
        reply = as_reply(builder.reply() if returned is None else returned)
        if not builder.stopped:
            receive(StreamStop(reply.stop_reason, reply.usage, reply))
        return reply

    async def _call_legacy(self, call: CallRequest) -> ChatReply:
        """Call a function with the older signature `(model, prompt, system) -> str`, which cannot use tools."""
        messages, system = call.messages, call.system
        if call.tools:
            raise ConfigurationError(
                "This chat_fn takes (model, prompt, system) and cannot use tools:"
                " write it as async chat_fn(model, messages, system, tools) -> ChatReply."
            )
        if "output_schema" in call.settings:
            system = append_schema_instructions(system, call.settings["output_schema"])
        if len(messages) == 1:
            prompt = message_text(messages[0])
        else:
            prompt = "\n\n".join(f"{message.role}: {message_text(message)}" for message in messages)
        assert self._chat_fn is not None
        return as_reply(await _await_if_needed(self._chat_fn(self._model, prompt, system)))


async def _iterate_callbacks(call: Callable[[OnDelta], Any]) -> AsyncGenerator[Any, None]:
    """Turn a function with a callback into an iterator: it yields the deltas, then the function's return value."""
    pending: deque[ReplyDelta] = deque()
    ready = asyncio.Event()
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()

    def receive(delta: ReplyDelta) -> _CompletedAwaitable:
        pending.append(delta)
        if threading.get_ident() == loop_thread:
            ready.set()
        else:  # a synchronous client in its own thread
            loop.call_soon_threadsafe(ready.set)
        return _COMPLETED

    task = asyncio.ensure_future(call(receive))
    task.add_done_callback(lambda _: ready.set())
    try:
        while True:
            await ready.wait()
            ready.clear()
            while pending:
                yield pending.popleft()
            if task.done() and not pending:
                break
        yield task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _CompletedAwaitable:
    """An awaitable that is already done."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


_COMPLETED = _CompletedAwaitable()


@dataclass(frozen=True, slots=True)
class _FunctionSignature:
    """The keywords that a chat function accepts in addition to the positional arguments."""

    is_legacy: bool
    keywords: frozenset[str] | None

    def select_settings(self, call: CallRequest) -> tuple[str | None, Mapping[str, Any]]:
        """Select the settings that the function accepts. A schema that it cannot take is added to the prompt."""
        system, settings = call.system, call.settings
        if not settings:
            return system, settings
        if "config" in settings:  # its entries become keywords, but must not replace positional arguments
            config = {name: value for name, value in settings["config"].items() if name not in POSITIONAL_PARAMETERS}
            settings = {**config, **{name: value for name, value in settings.items() if name != "config"}}
        if self.keywords is None:
            return system, settings
        if "output_schema" in settings and "output_schema" not in self.keywords:
            system = append_schema_instructions(system, settings["output_schema"])
        return system, {name: value for name, value in settings.items() if name in self.keywords}


def _get_signature(fn: Callable[..., Any], positional_count: int) -> _FunctionSignature:
    key = getattr(fn, "__func__", fn)
    with contextlib.suppress(TypeError):  # some callables cannot be weakly referenced
        found = _signatures.get(key)
        if found is None:
            found = _signatures[key] = _read_signature(fn, positional_count)
        return found
    return _read_signature(fn, positional_count)


def _read_signature(fn: Callable[..., Any], positional_count: int) -> _FunctionSignature:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return _FunctionSignature(is_legacy=False, keywords=frozenset())
    positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    kinds = {p.kind for p in parameters}
    is_legacy = (
        positional_count == 4
        and inspect.Parameter.VAR_POSITIONAL not in kinds
        and (len(positional) == 3 or positional[1:2] == ["prompt"])
    )
    if inspect.Parameter.VAR_KEYWORD in kinds:
        return _FunctionSignature(is_legacy, keywords=None)
    keyword_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return _FunctionSignature(is_legacy, keywords=frozenset([*positional[positional_count:], *keyword_only]))


async def _await_if_needed(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def as_reply(value: Any) -> ChatReply:
    """Convert the return value of a chat function or a model to a `ChatReply` with a `ChatUsage`."""
    if isinstance(value, ChatReply):
        if value.usage is not None and not isinstance(value.usage, ChatUsage):
            return replace(value, usage=make_usage(value.usage))
        return value
    if isinstance(value, str):
        return ChatReply(text=value)
    raise ConfigurationError(
        f"A chat function must return a ChatReply or a str, got {type(value).__name__}: return ChatReply(text=...)."
    )


async def dispatch_chat(opts: ChatOptions, messages: Messages, tools: Sequence[ToolEntry] | None = None) -> ChatReply:
    """Make one call with `opts.chat_fn` if set, else the model object, else the provider of the model's name.

    >>> import asyncio
    >>> from tellback.types import user_message
    >>> async def hello(model, messages, system, tools): return "Hello!"
    >>> asyncio.run(dispatch_chat(ChatOptions(chat_fn=hello), [user_message("Hi")], [])).text
    'Hello!'
    """
    return await resolve_caller(opts).complete(_build_call(opts, messages, tools))


async def dispatch_chat_stream(
    opts: ChatOptions,
    messages: Messages,
    tools: Sequence[ToolEntry] | None = None,
    on_delta: OnDelta | None = None,
) -> ChatReply:
    """Make one streamed call; `on_delta` receives each delta, or a few of them if the provider cannot stream.

    >>> import asyncio
    >>> from tellback.types import user_message
    >>> async def hello(model, messages, system, tools): return "Hello!"
    >>> seen = []
    >>> reply = asyncio.run(dispatch_chat_stream(ChatOptions(chat_fn=hello), [user_message("Hi")], [], seen.append))
    >>> seen[0]
    TextDelta(text='Hello!')
    """
    return await resolve_caller(opts).stream_to(_build_call(opts, messages, tools), DeltaSink(opts, on_delta))


def call_settings(opts: ChatOptions) -> dict[str, Any]:
    """Return the settings of a call besides messages, system prompt and tools; only those that are set."""
    settings: dict[str, Any] = {"config": dict(opts.config)} if opts.config else {}
    if opts.max_output_tokens is not None:
        settings["max_output_tokens"] = opts.max_output_tokens
    if opts.tool_choice is not None:
        settings["tool_choice"] = opts.tool_choice
    if opts.output_type is not None:
        settings["output_schema"] = OutputSpec.from_type(opts.output_type).schema
    return settings


class ModelCaller:
    """Calls a model object."""

    __slots__ = ("_model",)

    def __init__(self, model: Model) -> None:
        self._model = model

    async def complete(self, call: CallRequest) -> ChatReply:
        return as_reply(await self._model.complete(call.messages, call.system, call.tools, **call.settings))

    async def stream(self, call: CallRequest) -> AsyncGenerator[ReplyDelta | ChatReply, None]:
        builder = ReplyBuilder()
        deltas = self._model.stream(call.messages, call.system, call.tools, **call.settings)
        try:
            async for delta in deltas:
                builder.add(delta)
                yield delta
        finally:
            await close_stream(deltas)
        yield as_reply(builder.reply())

    async def stream_to(self, call: CallRequest, sink: DeltaSink) -> ChatReply:
        builder = ReplyBuilder()
        deltas = self._model.stream(call.messages, call.system, call.tools, **call.settings)
        try:
            async for delta in deltas:
                builder.add(delta)
                sink(delta)
                if sink.has_pending:
                    await sink.flush()
        finally:
            await close_stream(deltas)
        return as_reply(builder.reply())


ChatCaller: TypeAlias = ModelCaller | FunctionCaller | TracedCaller
"""A model object or a chat function with one interface.

`complete` returns the whole reply. `stream` yields the deltas, then the whole reply. `stream_to` passes the deltas to
`sink` and returns the whole reply."""


def resolve_caller(opts: ChatOptions) -> ChatCaller:
    """Select the caller: the chat function if set, else the model object, else the provider of the model's name.

    If tracing is on, each call gets a span.
    """
    name = opts.model_name
    provider: str | None = None
    caller: ChatCaller
    if opts.chat_fn is not None or opts.chat_stream_fn is not None:
        caller = FunctionCaller(name, opts.chat_fn, opts.chat_stream_fn)
    elif not isinstance(opts.model, str):
        caller, provider = ModelCaller(opts.model), getattr(opts.model, "provider", None)
    else:
        registration = resolve_registration(opts)
        provider = registration.display_name
        adapter = get_builtin_adapter(registration)
        if adapter is not None:
            caller = ModelCaller(adapter.model(name))
        elif registration.chat_fn is None and registration.chat_stream_fn is None:
            raise ConfigurationError(
                f"{provider} is registered for {name!r} but has no chat_fn:"
                " pass ChatOptions(chat_fn=...), or register it with ProviderRegistration(..., chat_fn=...)."
            )
        else:
            caller = FunctionCaller(name, registration.chat_fn, registration.chat_stream_fn)
    return caller if tracer() is None else TracedCaller(caller, name, provider)


def _build_call(opts: ChatOptions, messages: Messages, tools: Sequence[ToolEntry] | None) -> CallRequest:
    call = CallRequest(as_messages(messages), opts.system, tuple(map(as_tool, tools or ())), call_settings(opts))
    check_budget(opts, call.messages, call.tools)
    return call
