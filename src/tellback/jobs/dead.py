"""Taking over from workers that are gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from tellback.stores import Store
from tellback.types.jobs import Job

log = logging.getLogger("tellback.jobs")

LIVENESS_CHECKS = 4
LIVENESS_PAUSE_SECONDS = 0.8
"""Between looks at an owner of which nothing certain is known: some stores must miss it for a while to be sure."""


async def requeue_orphaned_jobs(store: Store, clock: Callable[[], datetime], *, patient: bool = True) -> list[Job]:
    """Put back in the queue what owners were running that are certainly dead; gives those jobs.

    Without `patient` it looks once, and takes no time.
    """
    released: list[Job] = []
    suspects = [owner for owner in await store.jobs.owners() if owner != store.owner]
    for check in range(LIVENESS_CHECKS if patient else 1):
        if check and suspects:
            await asyncio.sleep(LIVENESS_PAUSE_SECONDS)
        unknown = []
        for owner in suspects:
            alive = await store.is_alive(owner)
            if alive is False:
                released += await store.jobs.release(owner, now=clock())
            elif alive is None:
                unknown.append(owner)
        suspects = unknown
    if released:
        log.warning("%d jobs of workers that are gone were put back in the queue", len(released))
    return released
