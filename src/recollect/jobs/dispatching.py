"""From events to jobs, as they happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from recollect.jobs.options import WorkerOptions
from recollect.stores import Store

LIMIT = 500
"""How many events are looked at in one transaction."""

PAUSE_SECONDS = 0.05
"""What happens within this time is looked at together."""


class Dispatcher:
    """Makes the jobs that events ask for. `told` is called after each change, whether it made any or not."""

    def __init__(
        self,
        store: Store,
        options: WorkerOptions,
        clock: Callable[[], datetime],
        told: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._told = told

    async def run(self) -> None:
        """Follow the events until the store is closed."""
        changes = self._store.events.changes()
        try:
            async for _ in changes:
                await asyncio.sleep(PAUSE_SECONDS)
                await self.look()
                await self._told()
        finally:
            await changes.aclose()

    async def look(self) -> None:
        """Make the jobs of all events there are now."""
        jobs = self._store.jobs
        more = True
        while more and await jobs.pending():
            length = self._options.window_length
            more = (await jobs.dispatch(window_length=length, limit=LIMIT, now=self._clock())).more
