"""The synchronous API: the same objects, and every call blocks until it has its result.

One event loop runs in a thread of its own. Calls may come from any number of threads.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from typing import Any

from tellback.errors import ConfigurationError, StoreClosedError

_HANDLE_CLASSES = frozenset(
    (
        "tellback.api_keys.Keys",
        "tellback.admin.Admin",
        "tellback.app.Tellback",
        "tellback.client.admin.RemoteAdmin",
        "tellback.client.admin.RemoteBindings",
        "tellback.client.admin.RemoteEvents",
        "tellback.client.admin.RemoteJobs",
        "tellback.client.admin.RemoteKeys",
        "tellback.client.agents.RemoteAgents",
        "tellback.client.agents.RemoteSessions",
        "tellback.client.conversations.RemoteConversations",
        "tellback.client.memory.RemoteMemory",
        "tellback.client.memory.RemoteWorkingContextBuilder",
        "tellback.client.client.RemoteUser",
        "tellback.conversations.conversations.Conversations",
        "tellback.jobs.handle.Jobs",
        "tellback.memory.bindings.AllBindings",
        "tellback.memory.memory.Memory",
        "tellback.memory.working_context.WorkingContextBuilder",
        "tellback.specs.agents.Agents",
        "tellback.stores.events.EventFeed",
        "tellback.user.User",
    )
)
"""Classes whose objects are wrapped, so that their methods block; by name, so that none is imported for it."""


class _Portal:
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


class _Handle:
    """Any of our objects, with its asynchronous methods made to wait."""

    def __init__(self, target: Any, portal: _Portal) -> None:
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
        kind = type(value)
        is_handle = f"{kind.__module__}.{kind.__qualname__}" in _HANDLE_CLASSES
        return _Handle(value, self._portal) if is_handle else value


class SyncTellback(_Handle):
    """What `with Tellback(...) as rc:` gives: `rc.user("maya").conversations.create("chat")` returns the conversation.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as rc:
    ...     talk = rc.user("maya").conversations.create("chat", title="Hello")
    >>> talk.title
    'Hello'
    """

    def __init__(self, target: Any) -> None:
        super().__init__(target, _Portal())
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
