"""Timeouts that measure silence, not length: until the answer begins, and between its pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from tellback.errors import ProviderTimeoutError

T = TypeVar("T")

FINAL_SECONDS = 1.0


class IdleTimeout:
    """Allows one call `timeout` seconds of silence at a time."""

    def __init__(self, provider: str, model: str, timeout: float) -> None:
        self._provider = provider
        self._model = model
        self._timeout = timeout
        self._timer: asyncio.Timeout | None = None
        self._deadline: float | None = None

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Wait for something, but not for ever; raises `ProviderTimeoutError`."""
        try:
            async with asyncio.timeout_at(self._next_deadline()) as limit:
                self._timer = limit
                return await awaitable
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ProviderTimeoutError(
                f"{self._provider} said nothing for {self._timeout:g} seconds ({self._model})."
                " Raise timeout=, or try again.",
                provider=self._provider,
                model=self._model,
                retryable=True,
            ) from error
        finally:
            self._timer = None

    async def iterate(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Iterate, waiting for each item."""
        iterator = aiter(items)
        while True:
            try:
                item = await self.wait(anext(iterator))
            except StopAsyncIteration:
                return
            yield item

    def start_final_deadline(self) -> None:
        """All has been said that matters; what may still follow is given little time."""
        self._deadline = asyncio.get_running_loop().time() + FINAL_SECONDS

    def reset(self) -> None:
        """Something came that is no item: a ping, a comment, half an event. The silence starts anew."""
        if self._timer is not None:
            self._timer.reschedule(self._next_deadline())

    def _next_deadline(self) -> float:
        return self._deadline or asyncio.get_running_loop().time() + self._timeout


def watch_bytes(response: Any, on_chunk: Callable[[bytes], None]) -> None:
    """Show `seen` every piece of a response's body as the SDK reads it."""
    read_chunks = response.aiter_bytes

    async def watched(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        async for chunk in read_chunks(*args, **kwargs):
            on_chunk(chunk)
            yield chunk

    response.aiter_bytes = watched


async def close_iterator(iterator: Any) -> None:
    """Make an SDK's iterator let go of its connection.

    Closing an async generator does not close the generators inside it; cancelling what it waits for does. An iterator
    that is finished already is left alone.
    """
    while True:
        step = asyncio.ensure_future(anext(iterator, close_iterator))
        await asyncio.sleep(0)
        if not step.done():
            step.cancel()
        await asyncio.wait([step])
        if step.cancelled() or step.exception() is not None or step.result() is close_iterator:
            return
