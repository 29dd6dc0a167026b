"""Waiting for an end that must come, whoever loses patience meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any


async def finish(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait for the end of tasks, then cancel what is left.

    Being cancelled meanwhile does not stop it, and is raised at the end: a child process must not be left behind.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    while (left := {task for task in tasks if not task.done()}) and (rest := deadline - loop.time()) > 0:
        try:
            await asyncio.wait(left, timeout=rest)
        except asyncio.CancelledError as error:
            cancelled = error
    if left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1)
    if cancelled is not None:
        raise cancelled
