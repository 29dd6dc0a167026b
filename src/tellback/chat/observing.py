"""Model calls that are seen: whoever calls, each is a span."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

from tellback.chat.sink import DeltaSink
from tellback.telemetry import ModelSpan, model_span
from tellback.tools import Tool
from tellback.types import ChatReply, Message, ReplyDelta


class ChatCaller(Protocol):
    """Whoever answers: a model object or a chat function, called in one way."""

    async def complete(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> ChatReply: ...

    def stream(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ReplyDelta | ChatReply, None]: ...

    async def stream_to(
        self,
        messages: Sequence[Message],
        system: str | None,
        tools: Sequence[Tool],
        settings: Mapping[str, Any],
        sink: DeltaSink,
    ) -> ChatReply: ...


class TracedCaller:
    """Another caller, each of whose calls is a span below what is current when it begins."""

    __slots__ = ("_caller", "_model", "_provider")

    def __init__(self, caller: ChatCaller, model: str, provider: str | None) -> None:
        self._caller = caller
        self._model = model
        self._provider = provider

    async def complete(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> ChatReply:
        """The whole reply."""
        span = self._start_span(messages, system, settings, streaming=False)
        try:
            reply = await self._caller.complete(messages, system, tools, settings)
        except BaseException as error:
            span.fail(error)
            raise
        span.finish(reply)
        return reply

    async def stream(
        self, messages: Sequence[Message], system: str | None, tools: Sequence[Tool], settings: Mapping[str, Any]
    ) -> AsyncGenerator[ReplyDelta | ChatReply, None]:
        """The deltas, then the whole reply."""
        span = self._start_span(messages, system, settings, streaming=True)
        items = self._caller.stream(messages, system, tools, settings)
        try:
            async for item in items:
                if isinstance(item, ChatReply):
                    span.finish(item)
                yield item
        except BaseException as error:
            span.fail(error)
            raise
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
        span = self._start_span(messages, system, settings, streaming=True)
        try:
            reply = await self._caller.stream_to(messages, system, tools, settings, sink)
        except BaseException as error:
            span.fail(error)
            raise
        span.finish(reply)
        return reply

    def _start_span(
        self, messages: Sequence[Message], system: str | None, settings: Mapping[str, Any], *, streaming: bool
    ) -> ModelSpan:
        return model_span(self._model, self._provider, settings, messages=messages, system=system, streaming=streaming)
