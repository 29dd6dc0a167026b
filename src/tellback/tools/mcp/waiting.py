"""Waiting for an end that must come, whoever loses patience meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any


async def finish_tasks(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait for the end of tasks, then cancel what is left.

    Being cancelled meanwhile does not stop it, and is raised at the end: a child process must not be left behind.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    while (pending := {task for task in tasks if not task.done()}) and (remaining := deadline - loop.time()) > 0:
        try:
            await asyncio.wait(pending, timeout=remaining)
        except asyncio.CancelledError as error:
            cancelled = error
    if pending:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=1)
    if cancelled is not None:
        raise cancelled
