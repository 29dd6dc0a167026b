"""Work that would hold the event loop up, in a thread that is waited for also when the task is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class WorkCancelled(Exception):
    """Nobody wants the result any more."""


async def run_in_thread(
    work: Callable[[Callable[[], None]], T], discard: Callable[[T], None] = lambda result: None
) -> T:
    """What `work` gives. It is passed a function to call now and then, which ends it once the task is cancelled.

    Files are closed when nobody reads them any more, so a cancelled task waits for its thread; a result that came too
    late goes to `unwanted`.
    """
    stop = threading.Event()

    def check_cancelled() -> None:
        if stop.is_set():
            raise WorkCancelled

    future = asyncio.ensure_future(asyncio.to_thread(work, check_cancelled))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([future])
        if future.exception() is None:
            discard(future.result())
        raise
