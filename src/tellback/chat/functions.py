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
from tellback.chat.output import append_schema_instructions
from tellback.chat.sink import DeltaSink, OnDelta
from tellback.chat.usage import make_usage
from tellback.errors import ConfigurationError
from tellback.tools import Tool
from tellback.types import ChatReply, ChatUsage, Message, ReplyDelta, StreamStop, message_text, reply_deltas

POSITIONAL_PARAMETERS = ("model", "messages", "system", "tools", "on_delta")


class FunctionCaller:
    """Calls the functions of `ChatOptions` or of a registration; where only one is given, it does for both."""

    __slots__ = ("_chat_fn", "_chat_stream_fn", "_model")

    def __init__(
        self, model: str, chat_fn: Callable[..., Any] | None, chat_stream_fn: Callable[..., Any] | None
    ) -> None:
        self._model = model
        self._chat_fn = chat_fn
        self._chat_stream_fn = chat_stream_fn

    async def complete(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> ChatReply:
        """The whole reply."""
        if self._chat_fn is None:
            return await self._call_stream(messages, system, tools, settings, _ignore_delta)
        signature = _get_signature(self._chat_fn, 4)
        if signature.is_legacy:
            return await self._call_legacy(messages, system, tools, settings)
        system, accepted = signature.select_settings(system, settings)
        return as_reply(await _await_if_needed(self._chat_fn(self._model, messages, system, tools, **accepted)))

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
        items = _iterate_callbacks(lambda receive: self._call_stream(messages, system, tools, settings, receive))
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
        system, accepted = _get_signature(self._chat_stream_fn, 5).select_settings(system, settings)
        builder = ReplyBuilder()

        def collect(delta: ReplyDelta) -> Any:
            builder.add(delta)
            return receive(delta)

        returned = await _await_if_needed(
            self._chat_stream_fn(self._model, messages, system, tools, collect, **accepted)
        )
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
            system = append_schema_instructions(system, settings["output_schema"])
        if len(messages) == 1:
            prompt = message_text(messages[0])
        else:
            prompt = "\n\n".join(f"{message.role}: {message_text(message)}" for message in messages)
        assert self._chat_fn is not None
        return as_reply(await _await_if_needed(self._chat_fn(self._model, prompt, system)))


async def _iterate_callbacks(call: Callable[[OnDelta], Any]) -> AsyncGenerator[Any, None]:
    """Turn a function that calls back into an iterator: deltas as they come, then what the function returned."""
    pending: deque[ReplyDelta] = deque()
    ready = asyncio.Event()
    loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()

    def receive(delta: ReplyDelta) -> _CompletedAwaitable:
        pending.append(delta)
        if threading.get_ident() == loop_thread:
            ready.set()
        else:  # a synchronous client in a thread of its own
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


def _ignore_delta(delta: ReplyDelta) -> _CompletedAwaitable:
    return _COMPLETED


@dataclass(frozen=True, slots=True)
class _FunctionSignature:
    """What a chat function accepts beyond the positional contract."""

    is_legacy: bool
    keywords: frozenset[str] | None

    def select_settings(self, system: str | None, settings: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
        """The settings the function can take; a schema it cannot take goes into the system prompt."""
        if not settings:
            return system, settings
        if "config" in settings:  # its entries are given one by one, but never in place of the contract's own
            config = {name: value for name, value in settings["config"].items() if name not in POSITIONAL_PARAMETERS}
            settings = {**config, **{name: value for name, value in settings.items() if name != "config"}}
        if self.keywords is None:
            return system, settings
        if "output_schema" in settings and "output_schema" not in self.keywords:
            system = append_schema_instructions(system, settings["output_schema"])
        return system, {name: value for name, value in settings.items() if name in self.keywords}


_signatures: WeakKeyDictionary[Any, _FunctionSignature] = WeakKeyDictionary()


def _get_signature(fn: Callable[..., Any], positional_count: int) -> _FunctionSignature:
    key = getattr(fn, "__func__", fn)
    try:
        found = _signatures.get(key)
    except TypeError:
        return _read_signature(fn, positional_count)
    if found is None:
        found = _read_signature(fn, positional_count)
        with contextlib.suppress(TypeError):  # some callables cannot be held weakly
            _signatures[key] = found
    return found


def _read_signature(fn: Callable[..., Any], positional_count: int) -> _FunctionSignature:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return _FunctionSignature(is_legacy=False, keywords=frozenset())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_varargs = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    is_legacy = (
        positional_count == 4
        and not takes_varargs
        and (len(positional) == 3 or _parameter_names(positional)[1:2] == ["prompt"])
    )
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return _FunctionSignature(is_legacy, keywords=None)
    keywords = _parameter_names(positional[positional_count:]) + _parameter_names(
        [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    )
    return _FunctionSignature(is_legacy, keywords=frozenset(keywords))


def _parameter_names(parameters: Sequence[inspect.Parameter]) -> list[str]:
    return [parameter.name for parameter in parameters]


async def _await_if_needed(value: Any) -> Any:
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
