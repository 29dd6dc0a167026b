"""`ScriptedModel` and `FunctionModel`: models for tests that need no network."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.chat.model import ChatRequest, ModelBase, close_stream
from tellback.types import ChatReply, ChatUsage, ReplyDelta, TextDelta, ToolCall, message_text, reply_deltas
from tellback.types.jsontext import dump_json

Expectation = str | Callable[[ChatRequest], Any] | None

_call_ids = itertools.count(1)


class ScriptError(AssertionError):
    """The conversation differs from the script."""


@dataclass(frozen=True, slots=True)
class Step:
    """One scripted reply.

    `expect` is checked against the request first: a text that the last message must contain, or a function that
    returns false or raises if the request is wrong. `chunks` are the pieces in which the text is streamed. A step with
    `error` raises it after its text is streamed. `delay` is the number of seconds before the reply.

    >>> step = says("Hello!", expect="Hi", delay=0.5)
    >>> step.reply.text, step.expect, step.delay
    ('Hello!', 'Hi', 0.5)
    """

    reply: ChatReply = ChatReply()
    chunks: tuple[str, ...] | None = None
    error: BaseException | None = None
    expect: Expectation = None
    delay: float = 0


def says(
    text: str,
    *,
    chunks: int | Sequence[str] | None = None,
    thinking: str = "",
    stop_reason: str = "end_turn",
    usage: ChatUsage | None = None,
    expect: Expectation = None,
    delay: float = 0,
) -> Step:
    """Return a step that replies with text, streamed in pieces of `chunks` characters or in the given pieces.

    >>> says("Hello!", chunks=3).chunks
    ('Hel', 'lo!')
    """
    pieces: tuple[str, ...] | None
    if isinstance(chunks, int):
        pieces = tuple(text[start : start + chunks] for start in range(0, len(text), chunks))
    else:
        pieces = None if chunks is None else tuple(chunks)
    reply = ChatReply(text=text, stop_reason=stop_reason, usage=usage, thinking=thinking)
    return Step(reply, pieces, expect=expect, delay=delay)


def calls(
    tool: str | ToolCall,
    /,
    *more: ToolCall | Mapping[str, Any],
    saying: str = "",
    usage: ChatUsage | None = None,
    expect: Expectation = None,
    delay: float = 0,
    **input: Any,
) -> Step:
    """Return a step that calls a tool: `calls("add", x=1, y=2)`, or `calls("add", {"x": 1, "y": 2})` if names clash.

    Several calls: `calls(ToolCall(...), ToolCall(...))`. `saying` is text before the call.

    >>> calls("add", x=1, y=2).reply.tool_calls[0].input
    {'x': 1, 'y': 2}
    """
    if isinstance(tool, str):
        arguments = {name: value for item in more if isinstance(item, Mapping) for name, value in item.items()}
        tool = ToolCall(f"call_{next(_call_ids)}", tool, {**arguments, **input})
    tool_calls = (tool, *(item for item in more if isinstance(item, ToolCall)))
    reply = ChatReply(text=saying, tool_calls=tool_calls, stop_reason="tool_use", usage=usage)
    return Step(reply, expect=expect, delay=delay)


def answers(value: Any, *, expect: Expectation = None, usage: ChatUsage | None = None) -> Step:
    """Return a step that replies with a value as JSON, for `output_type`.

    >>> answers({"city": "Rome"}).reply.text
    '{"city":"Rome"}'
    """
    return Step(ChatReply(text=dump_json(value), usage=usage), expect=expect)


def raises(error: BaseException, *, after: str = "", expect: Expectation = None, delay: float = 0) -> Step:
    """Return a step that raises an error; in a stream, after the text `after`.

    >>> raises(TimeoutError(), after="Hel").reply.text
    'Hel'
    """
    return Step(ChatReply(text=after), error=error, expect=expect, delay=delay)


class _StepModel(ModelBase):
    """The base class of models that answer each request with a step."""

    async def _next(self, request: ChatRequest) -> Step:
        raise NotImplementedError

    async def _play(self, request: ChatRequest) -> Step:
        step = await self._next(request)
        if step.delay:
            await asyncio.sleep(step.delay)
        return step

    async def _complete(self, request: ChatRequest) -> ChatReply:
        step = await self._play(request)
        if step.error is not None:
            raise step.error
        return step.reply

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        for delta in stream_step(await self._play(request)):
            yield delta


class ScriptedModel(_StepModel):
    """A model that replies with the steps of a script, in order.

    A step is built by `says`, `calls`, `answers` or `raises`. A str, a `ChatReply`, an exception, or a function from
    the request to one of these is accepted too. A request after the end of the script raises `ScriptError`. So do
    unused steps at the end of a `with` block or in `assert_done()`. `requests` contains the requests so far.

    >>> import asyncio
    >>> with ScriptedModel([says("Hello!", expect="Hi")]) as model:
    ...     print(asyncio.run(model.complete("Hi")).text)
    Hello!
    """

    provider = "scripted"

    def __init__(self, script: Sequence[Any], *, model: str = "scripted") -> None:
        self.model = model
        self.requests: list[ChatRequest] = []
        self._script = list(script)

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.assert_done()

    @property
    def remaining(self) -> int:
        """The number of unused steps."""
        return len(self._script) - len(self.requests)

    def assert_done(self) -> None:
        """Raise `ScriptError` if a step is unused."""
        if self.remaining > 0:
            unused = ", ".join(map(_describe_step, self._script[len(self.requests) :]))
            raise ScriptError(f"{self.remaining} of {len(self._script)} scripted steps were not used: {unused}")

    async def _next(self, request: ChatRequest) -> Step:
        number = len(self.requests)
        self.requests.append(request)
        last = message_text(request.messages[-1]) if request.messages else ""
        if number >= len(self._script):
            raise ScriptError(
                f"call {number + 1} was not scripted (the script has {len(self._script)} steps): {last!r}"
            )
        step = as_step(self._script[number], request)
        _check_expectation(step.expect, request, last, number + 1)
        return step


def stream_step(step: Step) -> Iterator[ReplyDelta]:
    """Yield the deltas of a step, then raise its error."""
    if step.error is None:
        yield from reply_deltas(step.reply, step.chunks)
        return
    if step.reply.text:
        yield TextDelta(step.reply.text)
    raise step.error


def as_step(entry: Any, request: ChatRequest) -> Step:
    """Convert an entry of a script to a step."""
    if isinstance(entry, Step):
        return entry
    if isinstance(entry, str):
        return says(entry)
    if isinstance(entry, ChatReply):
        return Step(entry)
    if isinstance(entry, BaseException):
        return raises(entry)
    if isinstance(entry, ToolCall):
        return calls(entry)
    if callable(entry):
        return as_step(entry(request), request)
    raise TypeError(f"{entry!r} is not a step: use says(...), calls(...), answers(...) or raises(...).")


def _check_expectation(expect: Expectation, request: ChatRequest, last_text: str, number: int) -> None:
    if expect is None:
        return
    if isinstance(expect, str):
        if expect not in last_text:
            raise ScriptError(f"call {number}: expected {expect!r} in the last message, got {last_text!r}")
    elif expect(request) is False:
        raise ScriptError(f"call {number}: expect(request) returned false for {request!r}")


def _describe_step(entry: Any) -> str:
    if isinstance(entry, Step):
        if entry.error is not None:
            return f"raises({entry.error!r})"
        if entry.reply.tool_calls:
            return f"calls({', '.join(call.name for call in entry.reply.tool_calls)})"
        return f"says({entry.reply.text!r})"
    return repr(entry)


class FunctionModel(_StepModel):
    """A model whose replies come from a function of the request: a str, a `ChatReply`, or a step such as `calls(...)`.

    The function may be async. `stream_fn(request)`, an async generator of deltas, is used for streams if passed.

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

    async def _next(self, request: ChatRequest) -> Step:
        result = self._fn(request)
        if inspect.isawaitable(result):
            result = await result
        return as_step(result, request)

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        deltas = super()._stream(request) if self._stream_fn is None else self._stream_fn(request)
        try:
            async for delta in deltas:
                yield delta
        finally:
            await close_stream(deltas)
