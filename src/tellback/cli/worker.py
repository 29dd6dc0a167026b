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


async def run_worker(rc: Tellback, *, once: bool) -> int:
    """Run jobs until told to stop or, with `once`, until none is due; gives the exit code, 1 if jobs failed."""
    with stop_on_signals() as stop:
        started_at = rc.clock()
        async with rc:
            rc.jobs.wake()
            log.info("working on %s; Ctrl-C stops", rc.store.url)
            if not once:
                await stop.wait()
            elif not await _drain_or_stop(rc, stop):
                log.warning("stopped before all jobs were done")
                return 1
            log.info("stopping")
            return await _exit_code(rc, started_at) if once else 0


async def _exit_code(rc: Tellback, since: datetime) -> int:
    """1 if jobs have failed since then, for good or until their next attempt."""
    failed = [job for job in await rc.jobs.list("failed", limit=None) if job.updated_at >= since]
    retrying = [job for job in await rc.jobs.list("queued", limit=None) if job.error is not None]
    if failed or retrying:
        log.error("%d jobs failed, %d wait for their next attempt", len(failed), len(retrying))
    return 1 if failed or retrying else 0


async def _drain_or_stop(rc: Tellback, stop: asyncio.Event) -> bool:
    drain_task, stop_task = asyncio.ensure_future(rc.jobs.drain()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({drain_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
        return drain_task.done()
    finally:
        for task in (drain_task, stop_task):
            task.cancel()
        await asyncio.gather(drain_task, stop_task, return_exceptions=True)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """Set by the first signal to stop; a second one ends the process at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    signals = (signal.SIGINT, signal.SIGTERM)

    def on_signal() -> None:
        stop.set()
        for number in signals:
            loop.remove_signal_handler(number)

    with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C cancels this task, which stops as well
        for number in signals:
            loop.add_signal_handler(number, on_signal)
    try:
        yield stop
    finally:
        if not stop.is_set():
            with contextlib.suppress(NotImplementedError):
                for number in signals:
                    loop.remove_signal_handler(number)
