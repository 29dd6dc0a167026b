"""The end of requests and of the server: cancel work when a client disconnects, and shut down gracefully."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from tellback.concurrency import cancel_and_wait
from tellback.server.problems import problem_response

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499
"""The status, in the log, of a request whose client went away."""

RETRY_AFTER_SECONDS = 1


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


class ShutdownSignal:
    """Whether a server is about to stop. Feeds then end, turns that run are let finish, and no stream begins.

    >>> stopping = ShutdownSignal()
    >>> forget = stopping.subscribe(lambda: print("over"))
    >>> stopping.set()
    over
    >>> stopping.is_set
    True
    """

    def __init__(self) -> None:
        self._is_set = False
        self._callbacks: dict[object, Callable[[], None]] = {}

    @classmethod
    def for_app(cls, app: Any) -> ShutdownSignal:
        """The one of an application, in its `state.stopping`."""
        signal = getattr(app.state, "stopping", None)
        if signal is None:
            signal = app.state.stopping = cls()
        assert isinstance(signal, ShutdownSignal)
        return signal

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """From now on it is. To be called on the server's event loop."""
        if not self._is_set:
            self._is_set = True
            for callback in list(self._callbacks.values()):
                callback()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it when the server is about to stop, at once if it is already; what is given takes that back."""
        if self._is_set:
            callback()
            return lambda: None
        ticket = object()
        self._callbacks[ticket] = callback

        def unsubscribe() -> None:
            self._callbacks.pop(ticket, None)

        return unsubscribe


def shutdown_response(request_id: str | None = None) -> Response:
    """The answer to what would begin too late."""
    detail = "The server is about to stop: try again in a moment, and another one answers."
    return problem_response(
        503, "stopping", detail, request_id=request_id, headers={"Retry-After": str(RETRY_AFTER_SECONDS)}
    )
