"""Work that goes on after a call has returned."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("tellback")

GRACE_SECONDS = 5.0
CANCEL_RETRY_SECONDS = 2.0


async def cancel_and_wait(*tasks: asyncio.Future[Any]) -> None:
    """Cancel them, and wait for their end.

    Some libraries lose a cancellation that comes together with what they were waiting for (`asyncio.wait_for` does,
    before Python 3.12): whoever goes on is cancelled again.
    """
    pending = set(tasks)
    with contextlib.suppress(asyncio.CancelledError):
        while pending:
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=CANCEL_RETRY_SECONDS)
        await asyncio.gather(*tasks, return_exceptions=True)  # what they raised was heard


class BackgroundTasks:
    """The work this process does in the background, such as refreshing summaries.

    What fails is logged; what it was to do is done by a later one.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Let it run."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    @property
    def names(self) -> list[str]:
        """What is going on."""
        return sorted(task.get_name() for task in self._tasks)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until what is going on now has ended, or the time is up."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def drain(self) -> None:
        """Wait until nothing is left to do: for tests and scripts."""
        while self._tasks:
            await self.wait()

    async def close(self) -> None:
        """Give what runs a moment to finish, then cancel it."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE_SECONDS)
        await cancel_and_wait(*self._tasks)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed: %s", task.get_name(), exc_info=task.exception())
