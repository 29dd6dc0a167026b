"""Race conditions of the worker that follows events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from tellback.jobs.worker import EmbeddedWorker


async def test_the_worker_stops_if_it_is_cancelled_immediately_after_wake() -> None:
    async def changes() -> AsyncGenerator[None, None]:
        while True:
            yield
            await asyncio.sleep(0.01)

    async def do_nothing(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(has_more=False)

    jobs = SimpleNamespace(has_pending_events=do_nothing, dispatch=do_nothing)
    store: Any = SimpleNamespace(events=SimpleNamespace(changes=changes), jobs=jobs)
    worker = EmbeddedWorker(store, {})
    task = asyncio.create_task(worker._follow_events(do_nothing))
    await asyncio.sleep(0.05)  # now it waits for more changes
    worker.wake()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
