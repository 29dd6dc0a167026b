"""Telling those who wait that something has changed, across threads and event loops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator


class ChangeNotifier:
    """Rings for everyone who waits. Ringing is cheap when nobody does, and safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._closed = False

    @property
    def has_listeners(self) -> bool:
        """Whether anyone waits."""
        return bool(self._waiters)

    def notify(self) -> None:
        """Wake everyone up."""
        if not self._waiters:
            return
        with self._lock:
            waiters = list(self._waiters.items())
        for event, loop in waiters:
            if event.is_set():
                continue  # it has not looked yet: waking a loop for every change would cost more than the change
            with contextlib.suppress(RuntimeError):  # that loop has been closed, and nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Let everyone go."""
        self._closed = True
        self.notify()

    async def notifications(self) -> AsyncGenerator[None, None]:
        """Yields once at the start, then after every ring; several at once count as one. Ends when it is closed."""
        event = asyncio.Event()
        with self._lock:
            self._waiters[event] = asyncio.get_running_loop()
        try:
            while not self._closed:
                yield
                await event.wait()
                event.clear()
        finally:
            with self._lock:
                del self._waiters[event]
