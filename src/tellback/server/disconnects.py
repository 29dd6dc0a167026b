"""Clients that go away: what was done for them is not done any further."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Receive

from tellback.background import cancel_and_wait

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499
"""The status, in the log, of a request whose client went away."""


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has gone away. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work gives. When the client goes away it is cancelled, and there is nothing to answer."""
    task = asyncio.create_task(work, name="tellback answer")
    watcher = asyncio.create_task(wait_for_disconnect(request.receive), name="tellback disconnect")
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        await cancel_and_wait(task, watcher)
    raise HTTPException(CLIENT_CLOSED_REQUEST, "The client went away.")
