"""Helpers for asyncio: background tasks, cancellation, and generators with a separate context."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any, TypeVar

log = logging.getLogger("tellback")

GRACE_SECONDS = 5.0
CANCEL_RETRY_SECONDS = 2.0

T = TypeVar("T")


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended.

    Some libraries lose a cancellation that arrives together with their result (`asyncio.wait_for` before Python 3.12).
    A task that continues is therefore cancelled again.
    """
    pending = set(tasks)
    with contextlib.suppress(asyncio.CancelledError):
        while pending:
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=CANCEL_RETRY_SECONDS)
        await asyncio.gather(*tasks, return_exceptions=True)  # marks their exceptions as retrieved


async def finish_in_thread(
    work: Callable[[], T],
    on_cancel: Callable[[], Any] = lambda: None,
    discard: Callable[[T], Any] = lambda result: None,
) -> T:
    """Run blocking work in a thread and return its result. On cancellation, wait for the thread to end.

    `on_cancel` can ask the work to stop. A result that arrives after the cancellation is passed to `discard`.
    """
    future = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        on_cancel()
        await asyncio.wait([future])
        if future.exception() is None:
            discard(future.result())
        raise


class BackgroundTasks:
    """The background tasks of this process, such as refreshing summaries.

    A failed task is logged, but not repeated: a later task does the same work.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    @property
    def names(self) -> list[str]:
        """The names of the running tasks."""
        return sorted(task.get_name() for task in self._tasks)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the tasks that run now have ended, or until the timeout."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def drain(self) -> None:
        """Wait until no task is left. Tests and scripts use this."""
        while self._tasks:
            await self.wait()

    async def close(self) -> None:
        """Wait briefly for running tasks, then cancel them."""
        await self.wait(GRACE_SECONDS)
        await cancel_and_wait(*self._tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("Background task failed: %s", task.get_name(), exc_info=task.exception())


@coroutine
def run_in_context(context: Context, awaitable: Awaitable[T]) -> Generator[Any, Any, T]:
    """Await an object so that its code runs in `context`, which tasks that it starts inherit.

    >>> import asyncio
    >>> from contextvars import ContextVar, copy_context
    >>> name = ContextVar("name", default="default")
    >>> async def get_name(): return name.get()
    >>> async def main():
    ...     context = copy_context()
    ...     context.run(name.set, "maya")
    ...     return await run_in_context(context, get_name()), name.get()
    >>> asyncio.run(main())
    ('maya', 'default')
    """
    steps: Any = awaitable.__await__()
    try:
        waits_for = context.run(steps.send, None)
    except StopIteration as stop:
        result: T = stop.value
    else:
        result = yield from _resume(context, steps, waits_for)
    return result


async def iterate_in_context(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Iterate over a generator, whose code runs in a copy of the context in which the iteration starts.

    An item that is ready without waiting costs little more than a call.

    >>> import asyncio
    >>> from contextvars import ContextVar
    >>> name = ContextVar("name", default="default")
    >>> async def names():
    ...     name.set("maya")
    ...     yield name.get()
    >>> async def main():
    ...     return [(item, name.get()) async for item in iterate_in_context(names())]
    >>> asyncio.run(main())
    [('maya', 'default')]
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
                item = await _finish(context, steps, waits_for)
            except StopAsyncIteration:
                return
            yield item
    finally:
        await run_in_context(context, items.aclose())


def _resume(context: Context, steps: Any, waits_for: Any) -> Generator[Any, Any, Any]:
    """Resume a waiting coroutine step by step in its context."""
    run = context.run
    while True:
        try:
            value, step = (yield waits_for), steps.send
        except GeneratorExit:
            run(steps.close)
            raise
        except BaseException as error:  # noqa: BLE001 - the coroutine handles it, cancellation included
            value, step = error, steps.throw
        try:
            waits_for = run(step, value)
        except StopIteration as stop:
            return stop.value


_finish = coroutine(_resume)
