"""The implementation of the synchronous API: every call blocks until its result is available.

One event loop runs in its own thread. Calls may come from any number of threads. The types are in `tellback.sync`.
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
    """The base class of objects that the synchronous API wraps.

    `tools/sync_stubs.py` generates the types of the wrappers.
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
        """Whether this code runs on the loop's thread, where blocking calls are impossible."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        """Whether the thread has ended."""
        return self._loop.is_closed()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop's thread and wait. An interrupt cancels it."""
        if self.is_current_thread or self._loop.is_closed():
            work.close()
            if self.is_current_thread:
                raise ConfigurationError(
                    "The synchronous Tellback was called from its own event loop, probably by an async tool."
                    " Make the tool a plain function, or use `async with Tellback(...)`."
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
        """Turn an asynchronous iterator into a plain one."""
        end = object()

        async def following() -> Any:
            return await anext(items, end)

        try:
            while (item := self.call(following())) is not end:
                yield item
        finally:
            self._close_iterator(items)

    def close(self) -> None:
        """End the thread. Later calls do nothing."""
        if self._loop.is_closed():
            return
        self.call(_cancel_other_tasks())  # threads that wait for these tasks would never return
        self.call(self._loop.shutdown_asyncgens())
        self.call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _close_iterator(self, items: AsyncIterator[Any]) -> None:
        """Close an iterator. On the loop's thread, where the garbage collector may call this, do not wait."""
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
        except RuntimeError:  # it is still handling an interrupt
            await asyncio.sleep(0.01)
        else:
            return


class SyncHandle:
    """A wrapper around a handle whose asynchronous methods block."""

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
    """Return the wrapper class for handles of the class `name`, such as `SyncUser`."""
    return type(f"Sync{name}", (SyncHandle,), {"__module__": "tellback.sync"})


class SyncRoot(SyncHandle):
    """A wrapped handle that owns the thread. It opens the handle when it is created, and `close` closes it."""

    def __init__(self, target: Any) -> None:
        super().__init__(target, Portal())
        try:
            self._portal.call(target.open())
        except BaseException:
            self._portal.close()
            raise

    def close(self) -> None:
        """Close the handle and end the thread. Later calls do nothing."""
        if self._portal.is_closed:
            return
        try:
            self._portal.call(self._target.close())
        finally:
            self._portal.close()
