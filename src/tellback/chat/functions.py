"""Chat functions: what shapes they come in, and how each is called."""

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

from tellback.chat.assemble import ReplyBuilder
from tellback.chat.output import with_schema_instructions
from tellback.chat.sink import DeltaSink, OnDelta
from tellback.chat.usage import make_usage
from tellback.errors import ConfigurationError
from tellback.tools import Tool
from tellback.types import ChatReply, ChatUsage, Message, ReplyDelta, StreamStop, message_text, reply_deltas

CONTRACT = ("model", "messages", "system", "tools", "on_delta")


class FunctionCaller:
    """Calls the functions of `ChatOptions` or of a registration; where only one is given, it does for both."""

    __slots__ = ("_chat_fn", "_chat_stream_fn", "_name")

    def __init__(
        self, name: str, chat_fn: Callable[..., Any] | None, chat_stream_fn: Callable[..., Any] | None
    ) -> None:
        self._name = name
        self._chat_fn = chat_fn
        self._chat_stream_fn = chat_stream_fn

    async def complete(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> ChatReply:
        """The whole reply."""
        if self._chat_fn is None:
            return await self._call_stream(messages, system, tools, settings, _ignore)
        shape = _shape(self._chat_fn, 4)
        if shape.legacy:
            return await self._call_legacy(messages, system, tools, settings)
        system, accepted = shape.fit(system, settings)
        return as_reply(await _awaited(self._chat_fn(self._name, messages, system, tools, **accepted)))

    async def stream(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ReplyDelta | ChatReply, None]:
        """The deltas, then the whole reply."""
        if self._chat_stream_fn is None:
            reply = await self.complete(messages, system, tools, settings)
            for delta in reply_deltas(reply):
                yield delta
            yield reply
            return
        items = _bridge(lambda receive: self._call_stream(messages, system, tools, settings, receive))
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    async def stream_to(
        self,
        messages: Sequence[Message],
        system: str | None,
        tools: Sequence[Tool],
        settings: Mapping[str, Any],
        sink: DeltaSink,
    ) -> ChatReply:
        """The whole reply, its deltas given to `sink` as they come."""
        async with sink:
            if self._chat_stream_fn is not None:
                return await self._call_stream(messages, system, tools, settings, sink)
            reply = await self.complete(messages, system, tools, settings)
            for delta in reply_deltas(reply):
                sink(delta)
            return reply

    async def _call_stream(
        self,
        messages: Sequence[Message],
        system: str | None,
        tools: Sequence[Tool],
        settings: Mapping[str, Any],
        receive: Callable[[ReplyDelta], Any],
    ) -> ChatReply:
        assert self._chat_stream_fn is not None
        system, accepted = _shape(self._chat_stream_fn, 5).fit(system, settings)
        builder = ReplyBuilder()

        def collect(delta: ReplyDelta) -> Any:
            builder.add(delta)
            return receive(delta)

        returned = await _awaited(self._chat_stream_fn(self._name, messages, system, tools, collect, **accepted))
        reply = as_reply(builder.reply() if returned is None else returned)
        if not builder.stopped:
            receive(StreamStop(reply.stop_reason, reply.usage, reply))
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
        assert self._chat_fn is not None
        return as_reply(await _awaited(self._chat_fn(self._name, prompt, system)))


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
        if not settings:
            return system, settings
        if "config" in settings:  # its entries are given one by one, but never in place of the contract's own
            own = {name: value for name, value in settings["config"].items() if name not in CONTRACT}
            settings = {**own, **{name: value for name, value in settings.items() if name != "config"}}
        if self.keywords is None:
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


def as_reply(value: Any) -> ChatReply:
    """What a chat function or a model gave, as a `ChatReply` with a `ChatUsage`."""
    if isinstance(value, ChatReply):
        if value.usage is not None and not isinstance(value.usage, ChatUsage):
            return replace(value, usage=make_usage(value.usage))
        return value
    if isinstance(value, str):
        return ChatReply(text=value)
    raise ConfigurationError(
        f"A chat function must give a ChatReply or a str, not {type(value).__name__}: return ChatReply(text=...)."
    )
