"""`tellback worker`: a process that does nothing but run jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from datetime import datetime

from tellback.app import Tellback

log = logging.getLogger("tellback.cli")


async def work(rc: Tellback, *, once: bool) -> int:
    """Run jobs until told to stop or, with `once`, until none is due; gives the exit code, 1 if jobs failed."""
    with _signals() as stop:
        begun = rc.clock()
        async with rc:
            rc.jobs.wake()
            log.info("working on %s; Ctrl-C stops", rc.store.url)
            if not once:
                await stop.wait()
            elif not await _drained(rc, stop):
                log.warning("stopped before all jobs were done")
                return 1
            log.info("stopping")
            return await _unfinished(rc, begun) if once else 0


async def _unfinished(rc: Tellback, since: datetime) -> int:
    """1 if jobs have failed since then, for good or until their next attempt."""
    failed = [job for job in await rc.jobs.list("failed", limit=None) if job.updated_at >= since]
    waiting = [job for job in await rc.jobs.list("queued", limit=None) if job.error is not None]
    if failed or waiting:
        log.error("%d jobs failed, %d wait for their next attempt", len(failed), len(waiting))
    return 1 if failed or waiting else 0


async def _drained(rc: Tellback, stop: asyncio.Event) -> bool:
    draining, stopping = asyncio.ensure_future(rc.jobs.drain()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({draining, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return draining.done()
    finally:
        for task in (draining, stopping):
            task.cancel()
        await asyncio.gather(draining, stopping, return_exceptions=True)


@contextlib.contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """Set by the first signal to stop; a second one ends the process at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    handled = (signal.SIGINT, signal.SIGTERM)

    def come_to_an_end() -> None:
        stop.set()
        for number in handled:
            loop.remove_signal_handler(number)

    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels this task, which stops as well
        for number in handled:
            loop.add_signal_handler(number, come_to_an_end)
    try:
        yield stop
    finally:
        if not stop.is_set():
            with contextlib.suppress(NotImplementedError):
                for number in handled:
                    loop.remove_signal_handler(number)
