"""Running part of an async generator's work in a context of its own.

What a generator sets in a context variable is seen by whoever iterates over it, and stays set between its items. Work
that is stepped through a copied context keeps its variables to itself, whichever task asks for the next item.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from contextvars import Context
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
        run = self._context.run
        steps = self._awaitable.__await__()
        step, value = steps.send, None  # an iterator of C code has no send; what we await are coroutines of Python
        while True:
            try:
                waits_for = run(step, value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                value = yield waits_for
                step = steps.send
            except GeneratorExit:
                run(steps.close)
                raise
            except BaseException as error:  # noqa: BLE001 - a cancellation most of all: it is the work's to handle
                value, step = error, steps.throw
