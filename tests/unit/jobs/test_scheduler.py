"""The dispatcher of events, at the moments that are hard to hit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

from tellback.jobs.runner import DEFAULT_OPTIONS
from tellback.jobs.scheduler import Dispatcher
from tellback.types.ids import utc_now


async def test_it_ends_when_it_is_cancelled_just_as_it_is_hurried() -> None:
    async def changes() -> AsyncGenerator[None, None]:
        while True:
            yield
            await asyncio.sleep(0.01)

    async def do_nothing(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(has_more=False)

    urgent = asyncio.Event()
    jobs = SimpleNamespace(has_pending_events=do_nothing, dispatch=do_nothing)
    store: Any = SimpleNamespace(events=SimpleNamespace(changes=changes), jobs=jobs)
    task = asyncio.create_task(Dispatcher(store, DEFAULT_OPTIONS, utc_now, do_nothing, urgent).run())
    await asyncio.sleep(0.05)  # it waits for `urgent` now
    urgent.set()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
