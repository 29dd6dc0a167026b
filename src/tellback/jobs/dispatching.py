"""From events to jobs, as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from tellback.jobs.options import WorkerOptions
from tellback.stores import Store

EVENT_BATCH = 100
"""How many events are looked at in one transaction, for which others who write have to wait."""

DISPATCH_PAUSE_SECONDS = 0.5
"""What happens within this time is looked at together, unless there is a hurry: turns should not pay for each look."""

DISPATCH_INTERVAL_SECONDS = 30.0
"""How often to dispatch even if nothing asks for jobs: it moves on in the events, which keeps later looks short."""


class Dispatcher:
    """Makes the jobs that events ask for. `told` is called after each change, whether it made any or not.

    Once `hurry` is set, the next change is looked at without waiting for others.
    """

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        clock: Callable[[], datetime],
        on_dispatched: Callable[[], Awaitable[None]],
        urgent: asyncio.Event,
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._on_dispatched = on_dispatched
        self._urgent = urgent
        self._next_dispatch = 0.0

    async def run(self) -> None:
        """Follow the events until the store is closed."""
        changes = self._store.events.changes()
        try:
            async for _ in changes:
                with contextlib.suppress(TimeoutError):
                    # Not `wait_for`, which forgets a cancellation that comes together with the hurry.
                    async with asyncio.timeout(DISPATCH_PAUSE_SECONDS):
                        await self._urgent.wait()
                self._urgent.clear()
                await self.dispatch_pending()
                await self._on_dispatched()
        finally:
            await changes.aclose()

    async def dispatch_pending(self) -> None:
        """Make the jobs of all events there are now."""
        jobs, window_length = self._store.jobs, self._options.window_length
        more = True
        while more and (time.monotonic() >= self._next_dispatch or await jobs.has_pending_events()):
            more = (await jobs.dispatch(window_length=window_length, limit=EVENT_BATCH, now=self._clock())).has_more
            self._next_dispatch = time.monotonic() + DISPATCH_INTERVAL_SECONDS
