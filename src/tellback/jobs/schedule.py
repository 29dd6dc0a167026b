"""Work that comes round: once in each period, by whichever process is there."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.stores import Store

log = logging.getLogger("tellback.jobs")

MAX_TICK_SECONDS = 30.0
"""How often to see whether something has come round, at most."""


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
