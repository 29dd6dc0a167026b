"""One model call, by whichever way the options name: an explicit function, a model object, or the registry."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from recollect import events
from recollect.chat.assemble import ReplyBuilder
from recollect.chat.budget import check_budget
from recollect.chat.model import Messages, Model, ToolEntry, as_messages, close_stream
from recollect.chat.options import ChatOptions
from recollect.chat.output import OutputSpec, with_schema_instructions
from recollect.chat.registry import resolve_registration, shipped_adapter
from recollect.chat.usage import make_usage
from recollect.errors import ConfigurationError
from recollect.tools import Tool, as_tool
from recollect.types import ChatReply, ChatUsage, Message, ReplyDelta, StreamStop, message_text, reply_deltas

OnDelta = Callable[[ReplyDelta], Any]


async def dispatch_chat(opts: ChatOptions, messages: Messages, tools: Sequence[ToolEntry] | None = None) -> ChatReply:
    """One call: `opts.chat_fn` if there is one, else the model object, else the provider registered for the name.

    >>> import asyncio
    >>> from recollect.types import user_message
    >>> async def hello(model, messages, system, tools): return "Hello!"
    >>> asyncio.run(dispatch_chat(ChatOptions(chat_fn=hello), [user_message("Hi")], [])).text
    'Hello!'
    """
    messages, made = as_messages(messages), _as_tools(tools)
    check_budget(opts, messages, made)
    return await Caller(opts).complete(messages, opts.system, made, call_settings(opts))


async def dispatch_chat_stream(
    opts: ChatOptions,
    messages: Messages,
    tools: Sequence[ToolEntry] | None = None,
    on_delta: OnDelta | None = None,
) -> ChatReply:
    """One streamed call; `on_delta` gets every delta. A provider that cannot stream gives its reply as a few deltas.

    >>> import asyncio
    >>> from recollect.types import user_message
    >>> async def hello(model, messages, system, tools): return "Hello!"
    >>> seen = []
    >>> reply = asyncio.run(dispatch_chat_stream(ChatOptions(chat_fn=hello), [user_message("Hi")], [], seen.append))
    >>> seen[0]
    TextDelta(text='Hello!')
    """
    messages, made = as_messages(messages), _as_tools(tools)
    check_budget(opts, messages, made)
    sink = DeltaSink(opts, on_delta)
    return await Caller(opts).stream_to(messages, opts.system, made, call_settings(opts), sink)


def call_settings(opts: ChatOptions) -> dict[str, Any]:
    """What goes to the model beside messages, system prompt and tools: only what is set."""
    settings: dict[str, Any] = dict(opts.config) if opts.config else {}
    if opts.max_output_tokens is not None:
        settings["max_output_tokens"] = opts.max_output_tokens
    if opts.tool_choice is not None:
        settings["tool_choice"] = opts.tool_choice
    if opts.output_type is not None:
        settings["output_schema"] = OutputSpec.of(opts.output_type).schema
    return settings


class DeltaSink:
    """Where deltas go: the caller's callback, sync or async, and the run's event stream.

    What an async callback has to do is done by one task, in order, while the stream goes on. Calling the sink returns
    it, and it can be awaited, so that stream functions may write `on_delta(d)` or `await on_delta(d)`.
    """

    __slots__ = ("_label", "_on_delta", "_task", "_waiting")

    def __init__(self, opts: ChatOptions, on_delta: OnDelta | None) -> None:
        self._on_delta = on_delta
        self._label = opts.delta_data_type if opts.emit_stream_deltas else None
        self._waiting: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None

    def __call__(self, delta: ReplyDelta) -> DeltaSink:
        if self._label is not None:
            events.emit(self._label, delta)
        if self._on_delta is not None:
            outcome = self._on_delta(delta)
            if outcome is not None and inspect.isawaitable(outcome):
                self._waiting.append(outcome)
                if self._task is None or self._task.done():
                    if self._task is not None:
                        self._task.result()  # raises what the callback raised before
                    self._task = asyncio.ensure_future(self._work())
        return self

    def __await__(self) -> Generator[Any, Any, None]:
        if self._task is not None:
            yield from self.settle().__await__()

    @property
    def is_behind(self) -> bool:
        """Whether an async callback still has something to do."""
        return self._task is not None

    async def settle(self) -> None:
        """Wait until it has caught up; what the callback raises is raised here."""
        try:
            while self._task is not None:
                task, self._task = self._task, None
                await task
                if self._waiting:
                    self._task = asyncio.ensure_future(self._work())
        finally:
            while self._waiting:  # after a failure nobody will await the rest
                close = getattr(self._waiting.popleft(), "close", None)
                if close is not None:
                    close()

    async def _work(self) -> None:
        while self._waiting:
            await self._waiting.popleft()


class Caller:
    """The one way options name a model, ready to be called any number of times."""

    __slots__ = ("_complete_fn", "_model", "_name", "_stream_fn")

    def __init__(self, opts: ChatOptions) -> None:
        self._name = opts.model_name
        self._model: Model | None = None
        self._complete_fn = opts.chat_fn
        self._stream_fn = opts.chat_stream_fn
        if opts.chat_fn is not None or opts.chat_stream_fn is not None:
            return
        if not isinstance(opts.model, str):
            self._model = opts.model
            return
        entry = resolve_registration(opts)
        adapter = shipped_adapter(entry)
        if adapter is not None:
            self._model = adapter.model(self._name)
            return
        self._complete_fn, self._stream_fn = entry.chat_fn, entry.chat_stream_fn
        if entry.chat_fn is None and entry.chat_stream_fn is None:
            raise ConfigurationError(
                f"{entry.display_name} is registered for {self._name!r} but has no chat_fn:"
                " pass ChatOptions(chat_fn=...), or register it with ProviderRegistration(..., chat_fn=...)."
            )

    async def complete(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> ChatReply:
        """The whole reply."""
        if self._model is not None:
            return _as_reply(await self._model.complete(messages, system, tools, **settings))
        if self._complete_fn is None:
            return await self._call_stream(messages, system, tools, settings, _ignore)
        shape = _shape(self._complete_fn, 4)
        if shape.legacy:
            return await self._call_legacy(messages, system, tools, settings)
        system, accepted = shape.fit(system, settings)
        return _as_reply(await _awaited(self._complete_fn(self._name, messages, system, tools, **accepted)))

    async def stream_to(
        self,
        messages: Sequence[Message],
        system: str | None,
        tools: Sequence[Tool],
        settings: Mapping[str, Any],
        sink: DeltaSink,
    ) -> ChatReply:
        """The whole reply, its deltas given to `sink` as they come."""
        if self._model is None and self._stream_fn is not None:
            try:
                return await self._call_stream(messages, system, tools, settings, sink)
            finally:
                await sink
        items = self.stream(messages, system, tools, settings)
        try:
            async for item in items:
                if isinstance(item, ChatReply):
                    reply = item
                else:
                    sink(item)
                    if sink.is_behind:
                        await sink.settle()
        finally:
            await items.aclose()
        return reply

    async def stream(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ReplyDelta | ChatReply, None]:
        """The deltas, then the whole reply."""
        if self._model is not None:
            builder = ReplyBuilder()
            deltas = self._model.stream(messages, system, tools, **settings)
            try:
                async for delta in deltas:
                    builder.add(delta)
                    yield delta
            finally:
                await close_stream(deltas)
            yield _as_reply(builder.reply())
        elif self._stream_fn is not None:
            items = _bridge(lambda sink: self._call_stream(messages, system, tools, settings, sink))
            try:
                async for item in items:
                    yield item
            finally:
                await items.aclose()
        else:
            reply = await self.complete(messages, system, tools, settings)
            for delta in reply_deltas(reply):
                yield delta
            yield reply

    async def _call_stream(
        self,
        messages: Sequence[Message],
        system: str | None,
        tools: Sequence[Tool],
        settings: Mapping[str, Any],
        sink: Callable[[ReplyDelta], Any],
    ) -> ChatReply:
        assert self._stream_fn is not None
        system, accepted = _shape(self._stream_fn, 5).fit(system, settings)
        builder = ReplyBuilder()

        def collect(delta: ReplyDelta) -> Any:
            builder.add(delta)
            return sink(delta)

        returned = await _awaited(self._stream_fn(self._name, messages, system, tools, collect, **accepted))
        reply = _as_reply(builder.reply() if returned is None else returned)
        if not builder.stopped:
            sink(StreamStop(reply.stop_reason, reply.usage, reply))
        return reply

    async def _call_legacy(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> ChatReply:
        """The older shape `(model, prompt, system) -> str`, enough where no tools are in play."""
        if tools:
            raise ConfigurationError(
                "This chat_fn takes (model, prompt, system) and cannot use tools:"
                " write it as async chat_fn(model, messages, system, tools) -> ChatReply."
            )
        if "output_schema" in settings:
            system = with_schema_instructions(system, settings["output_schema"])
        if len(messages) == 1:
            prompt = message_text(messages[0])
        else:
            prompt = "\n\n".join(f"{message.role}: {message_text(message)}" for message in messages)
        assert self._complete_fn is not None
        return _as_reply(await _awaited(self._complete_fn(self._name, prompt, system)))


async def _bridge(call: Callable[[OnDelta], Any]) -> AsyncGenerator[Any, None]:
    """Turn a function that calls back into an iterator: deltas as they come, then what the function returned."""
    waiting: deque[ReplyDelta] = deque()
    ready = asyncio.Event()
    loop, here = asyncio.get_running_loop(), threading.get_ident()

    def receive(delta: ReplyDelta) -> _Done:
        waiting.append(delta)
        if threading.get_ident() == here:
            ready.set()
        else:  # a synchronous client in a thread of its own
            loop.call_soon_threadsafe(ready.set)
        return _DONE

    task = asyncio.ensure_future(call(receive))
    task.add_done_callback(lambda _: ready.set())
    try:
        while True:
            await ready.wait()
            ready.clear()
            while waiting:
                yield waiting.popleft()
            if task.done() and not waiting:
                break
        yield task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _Done:
    """An awaitable that is already done."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


_DONE = _Done()


def _ignore(delta: ReplyDelta) -> _Done:
    return _DONE


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a chat function accepts beyond the positional contract."""

    legacy: bool
    keywords: frozenset[str] | None

    def fit(self, system: str | None, settings: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
        """The settings the function can take; a schema it cannot take goes into the system prompt."""
        if not settings or self.keywords is None:
            return system, settings
        if "output_schema" in settings and "output_schema" not in self.keywords:
            system = with_schema_instructions(system, settings["output_schema"])
        return system, {name: value for name, value in settings.items() if name in self.keywords}


_shapes: WeakKeyDictionary[Any, _Shape] = WeakKeyDictionary()


def _shape(fn: Callable[..., Any], contract: int) -> _Shape:
    key = getattr(fn, "__func__", fn)
    try:
        found = _shapes.get(key)
    except TypeError:
        return _inspect(fn, contract)
    if found is None:
        found = _inspect(fn, contract)
        with contextlib.suppress(TypeError):  # some callables cannot be held weakly
            _shapes[key] = found
    return found


def _inspect(fn: Callable[..., Any], contract: int) -> _Shape:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return _Shape(legacy=False, keywords=frozenset())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    legacy = contract == 4 and not takes_any and (len(positional) == 3 or _names(positional)[1:2] == ["prompt"])
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return _Shape(legacy, keywords=None)
    named = _names(positional[contract:]) + _names([p for p in parameters if p.kind is p.KEYWORD_ONLY])
    return _Shape(legacy, keywords=frozenset(named))


def _names(parameters: Sequence[inspect.Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters]


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _as_reply(value: Any) -> ChatReply:
    if isinstance(value, ChatReply):
        if value.usage is not None and not isinstance(value.usage, ChatUsage):
            return replace(value, usage=make_usage(value.usage))
        return value
    if isinstance(value, str):
        return ChatReply(text=value)
    raise ConfigurationError(
        f"A chat function must give a ChatReply or a str, not {type(value).__name__}: return ChatReply(text=...)."
    )


def _as_tools(tools: Sequence[ToolEntry] | None) -> tuple[Tool, ...]:
    return tuple(map(as_tool, tools)) if tools else ()
