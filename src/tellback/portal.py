"""The synchronous API at work: the same objects, and every call blocks until it has its result.

One event loop runs in a thread of its own. Calls may come from any number of threads. The types are in `tellback.sync`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import cache
from typing import Any

from tellback.errors import ConfigurationError, StoreClosedError


class Handle:
    """The base of each class whose objects the synchronous API wraps, so that their methods block.

    `tools/sync_stubs.py` writes the types of the wrapped ones.
    """

    __slots__ = ()


class Portal:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tellback-sync", daemon=True)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether we are on its thread, where nothing can be waited for."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended."""
        return self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run it on the loop's thread, and wait; interrupting the wait cancels it."""
        if self.is_current_thread or self._loop.is_closed():
            work.close()
            if self.is_current_thread:
                raise ConfigurationError(
                    "The synchronous Tellback was called from its own event loop, by an async tool perhaps:"
                    " make that a plain function, or use `async with Tellback(...)`."
                )
            raise StoreClosedError("Tellback has been closed.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise StoreClosedError("Tellback was closed during the call.") from None
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        """An asynchronous iterator as a plain one."""
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        try:
            while (item := self.call(following())) is not end:
                yield item
        finally:
            self._close_iterator(items)

    def close(self) -> None:
        """End the thread; once is enough."""
        if self._loop.is_closed():
            return
        self.call(_cancel_other_tasks())  # or threads that still wait for something would wait for ever
        self.call(self._loop.shutdown_asyncgens())
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _close_iterator(self, items: AsyncIterator[Any]) -> None:
        """Close an iterator. The collector may do it anywhere, also on the loop's own thread: then nobody waits."""
        if self._loop.is_closed():
            return
        if self.is_current_thread:
            self._loop.create_task(_close(items))
        else:
            self.call(_close(items))


async def _cancel_other_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _close(items: AsyncIterator[Any]) -> None:
    while True:
        try:
            await items.aclose()  # type: ignore[attr-defined]
        except RuntimeError:  # it was interrupted, and is still on its way out
            await asyncio.sleep(0.01)
        else:
            return


class SyncHandle:
    """Any of our objects, with its asynchronous methods made to wait."""

    def __init__(self, target: Any, portal: Portal) -> None:
        self._target = target
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if inspect.ismethod(value):
            return self._blocking(value)
        return self._wrap(value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_target", "_portal"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._target, name, value)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __repr__(self) -> str:
        return f"<synchronous {self._target!r}>"

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if inspect.iscoroutine(result):
                result = self._portal.call(result)
            elif isinstance(result, AsyncIterator):
                return self._portal.iterate(result)
            return self._wrap(result)

        call.__name__, call.__doc__ = method.__name__, method.__doc__
        return call

    def _wrap(self, value: Any) -> Any:
        return sync_class(type(value).__name__)(value, self._portal) if isinstance(value, Handle) else value


@cache
def sync_class(name: str) -> type[SyncHandle]:
    """The class of what wraps handles of a class of that name, such as `SyncUser`."""
    return type(f"Sync{name}", (SyncHandle,), {"__module__": "tellback.sync"})


class SyncRoot(SyncHandle):
    """A wrapped handle that owns the thread: opened when it is made, and closed by `close`."""

    def __init__(self, target: Any) -> None:
        super().__init__(target, Portal())
        try:
            self._portal.call(target.open())
        except BaseException:
            self._portal.close()
            raise

    def close(self) -> None:
        """Close it, and end the thread; once is enough."""
        if self._portal.is_closed:
            return
        try:
            self._portal.call(self._target.close())
        finally:
            self._portal.close()
