"""What makes jobs due: dispatch events to jobs, requeue jobs of dead workers, and run periodic schedules."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tellback.jobs.runner import WorkerOptions
from tellback.stores import Store
from tellback.types.jobs import Job

log = logging.getLogger("tellback.jobs")

LIVENESS_CHECKS = 4
LIVENESS_PAUSE_SECONDS = 0.8
"""Between looks at an instance of which nothing certain is known: some stores must miss it for a while to be sure."""

EVENT_BATCH = 100
"""How many events are looked at in one transaction, for which others who write have to wait."""

DISPATCH_PAUSE_SECONDS = 0.5
"""What happens within this time is looked at together, unless there is a hurry: turns should not pay for each look."""

DISPATCH_INTERVAL_SECONDS = 30.0
"""How often to dispatch even if nothing asks for jobs: it moves on in the events, which keeps later looks short."""


MAX_TICK_SECONDS = 30.0
"""How often to see whether something has come round, at most."""


async def requeue_orphaned_jobs(store: Store, clock: Callable[[], datetime], *, patient: bool = True) -> list[Job]:
    """Put back in the queue what instances were running that are certainly dead; gives those jobs.

    Without `patient` it looks once, and takes no time.
    """
    released: list[Job] = []
    suspects = [instance_id for instance_id in await store.jobs.running_instances() if instance_id != store.instance_id]
    for check in range(LIVENESS_CHECKS if patient else 1):
        if check and suspects:
            await asyncio.sleep(LIVENESS_PAUSE_SECONDS)
        unknown = []
        for instance_id in suspects:
            alive = await store.is_instance_alive(instance_id)
            if alive is False:
                released += await store.jobs.release(instance_id, now=clock())
            elif alive is None:
                unknown.append(instance_id)
        suspects = unknown
    if released:
        log.warning("%d jobs of workers that are gone were put back in the queue", len(released))
    return released


class Dispatcher:
    """Makes the jobs that events ask for. `on_dispatched` is called after each change, whether it made any or not.

    Once `urgent` is set, the next change is looked at without waiting for others.
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
                    # Not `wait_for`, which forgets a cancellation that comes together with `_urgent`.
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


@dataclass(frozen=True, slots=True)
class Schedule:
    """Something to do every so many seconds, in one process at a time; `name` is what processes know it by.

    >>> async def tidy(): ...
    >>> Schedule("tidy", every=3600, run=tidy).name
    'tidy'
    """

    name: str
    every: float
    run: Callable[[], Awaitable[Any]]


class Scheduler:
    """The schedules of a process. One that fails is logged, and its turn comes again."""

    def __init__(self, store: Store, schedules: Sequence[Schedule]) -> None:
        self._store = store
        self._schedules = tuple(schedules)
        self._next_run: dict[str, float] = {}

    @property
    def pause(self) -> float:
        """How long to wait between two looks."""
        return min([MAX_TICK_SECONDS, *(schedule.every for schedule in self._schedules)])

    def __bool__(self) -> bool:
        return bool(self._schedules)

    async def tick(self) -> int:
        """Run what has come round and nobody else has taken; gives how many."""
        run_count = 0
        for schedule in self._schedules:
            at = time.time()
            if at < self._next_run.get(schedule.name, 0.0):
                continue  # we had the last turn ourselves, so nobody has the next one yet
            if not await self._store.jobs.claim_schedule(schedule.name, at=at, every=schedule.every):
                continue
            self._next_run[schedule.name] = at + schedule.every
            run_count += 1
            try:
                await schedule.run()
            except Exception:
                log.exception("the schedule %r failed; it is tried again in %g s", schedule.name, schedule.every)
        return run_count
