"""`FunctionModel`: a model made of a function, for tests and for stand-ins."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from tellback.chat.model import ChatRequest, ModelBase, close_stream
from tellback.testing.scripted import Step, as_step, stream_step
from tellback.types import ChatReply, ReplyDelta


class FunctionModel(ModelBase):
    """Answers with what a function makes of the request: a str, a `ChatReply`, or a step such as `calls(...)`.

    The function may be async. `stream_fn(request)`, an async generator of deltas, is used for streams when given.

    >>> import asyncio
    >>> model = FunctionModel(lambda request: f"You said {request.messages[-1].content!r}.")
    >>> asyncio.run(model.complete("Hi")).text
    "You said 'Hi'."
    """

    provider = "function"

    def __init__(
        self,
        fn: Callable[[ChatRequest], Any],
        *,
        stream_fn: Callable[[ChatRequest], AsyncIterator[ReplyDelta]] | None = None,
        model: str = "function",
    ) -> None:
        self.model = model
        self._fn = fn
        self._stream_fn = stream_fn

    async def _complete(self, request: ChatRequest) -> ChatReply:
        step = await self._run(request)
        if step.error is not None:
            raise step.error
        return step.reply

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        if self._stream_fn is not None:
            deltas = self._stream_fn(request)
            try:
                async for delta in deltas:
                    yield delta
            finally:
                await close_stream(deltas)
            return
        for delta in stream_step(await self._run(request)):
            yield delta

    async def _run(self, request: ChatRequest) -> Step:
        result = self._fn(request)
        if inspect.isawaitable(result):
            result = await result
        step = as_step(result, request)
        if step.delay:
            await asyncio.sleep(step.delay)
        return step
