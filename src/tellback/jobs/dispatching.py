"""From events to jobs, as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from tellback.jobs.options import WorkerOptions
from tellback.stores import Store

LIMIT = 100
"""How many events are looked at in one transaction, for which others who write have to wait."""

PAUSE_SECONDS = 0.5
"""What happens within this time is looked at together, unless there is a hurry: turns should not pay for each look."""

MOVE_SECONDS = 30.0
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
        told: Callable[[], Awaitable[None]],
        hurry: asyncio.Event,
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._told = told
        self._hurry = hurry
        self._next = 0.0

    async def run(self) -> None:
        """Follow the events until the store is closed."""
        changes = self._store.events.changes()
        try:
            async for _ in changes:
                with contextlib.suppress(TimeoutError):
                    # Not `wait_for`, which forgets a cancellation that comes together with the hurry.
                    async with asyncio.timeout(PAUSE_SECONDS):
                        await self._hurry.wait()
                self._hurry.clear()
                await self.look()
                await self._told()
        finally:
            await changes.aclose()

    async def look(self) -> None:
        """Make the jobs of all events there are now."""
        jobs, length = self._store.jobs, self._options.window_length
        more = True
        while more and (time.monotonic() >= self._next or await jobs.pending()):
            more = (await jobs.dispatch(window_length=length, limit=LIMIT, now=self._clock())).more
            self._next = time.monotonic() + MOVE_SECONDS
