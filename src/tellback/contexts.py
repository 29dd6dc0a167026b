"""Running part of an async generator's work in a context of its own.

What a generator sets in a context variable is seen by whoever iterates over it, and stays set between its items. Work
that is stepped through a copied context keeps its variables to itself, whichever task asks for the next item.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Generator
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class InContext(Generic[T]):
    """Awaits something so that its code runs in `context`, and tasks it starts inherit that.

    >>> import asyncio
    >>> from contextvars import ContextVar, copy_context
    >>> name = ContextVar("name", default="nobody")
    >>> async def who(): return name.get()
    >>> async def main():
    ...     context = copy_context()
    ...     context.run(name.set, "maya")
    ...     return await InContext(context, who()), name.get()
    >>> asyncio.run(main())
    ('maya', 'nobody')
    """

    __slots__ = ("_awaitable", "_context")

    def __init__(self, context: Context, awaitable: Awaitable[T]) -> None:
        self._context = context
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaitable.__await__()
        try:
            waits_for = self._context.run(steps.send, None)  # what we await are coroutines, which have a send
        except StopIteration as stop:
            result: T = stop.value
        else:
            result = yield from _resume(self._context, steps, waits_for)
        return result


async def iterate_in_context(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The items of a generator whose code runs in a copy of the context in which the first one is asked for.

    What does not wait costs little more than a call.

    >>> import asyncio
    >>> from contextvars import ContextVar
    >>> name = ContextVar("name", default="nobody")
    >>> async def names():
    ...     name.set("maya")
    ...     yield name.get()
    >>> async def main():
    ...     return [(item, name.get()) async for item in iterate_in_context(names())]
    >>> asyncio.run(main())
    [('maya', 'nobody')]
    """
    context = copy_context()
    run = context.run
    try:
        while True:
            steps: Any = items.__anext__()
            try:
                waits_for = run(steps.send, None)
            except StopIteration as ready:
                yield ready.value
                continue
            except StopAsyncIteration:
                return
            try:
                item = await _PendingStep(context, steps, waits_for)
            except StopAsyncIteration:
                return
            yield item
    finally:
        await InContext(context, items.aclose())


class _PendingStep:
    """What is left of an awaitable that has been begun."""

    __slots__ = ("_context", "_steps", "_waits_for")

    def __init__(self, context: Context, steps: Any, waits_for: Any) -> None:
        self._context = context
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        return _resume(self._context, self._steps, self._waits_for)


def _resume(context: Context, steps: Any, waits_for: Any) -> Generator[Any, Any, Any]:
    """Go on with what waits for something, step by step in its context."""
    run = context.run
    while True:
        try:
            value, step = (yield waits_for), steps.send
        except GeneratorExit:
            run(steps.close)
            raise
        except BaseException as error:  # noqa: BLE001 - a cancellation most of all: it is the work's to handle
            value, step = error, steps.throw
        try:
            waits_for = run(step, value)
        except StopIteration as stop:
            return stop.value
