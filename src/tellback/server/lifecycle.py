"""Cancel work when a client disconnects, and shut down gracefully."""

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
"""The status logged for a request whose client disconnected."""

RETRY_AFTER_SECONDS = 1


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. If the client disconnects first, cancel the work."""
    task = asyncio.create_task(work, name="tellback answer")
    watcher = asyncio.create_task(wait_for_disconnect(request.receive), name="tellback disconnect")
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        await cancel_and_wait(task, watcher)
    raise HTTPException(CLIENT_CLOSED_REQUEST, "The client disconnected.")


class ShutdownSignal:
    """Signals that the server is shutting down: event streams end, running turns finish, new turns and streams fail.

    >>> stopping = ShutdownSignal()
    >>> unsubscribe = stopping.subscribe(lambda: print("stopping"))
    >>> stopping.set()
    stopping
    >>> stopping.is_set
    True
    """

    def __init__(self) -> None:
        self._is_set = False
        self._callbacks: dict[object, Callable[[], None]] = {}

    @classmethod
    def for_app(cls, app: Any) -> ShutdownSignal:
        """Return the signal of an application, stored in `app.state.stopping`."""
        signal = getattr(app.state, "stopping", None)
        if signal is None:
            signal = app.state.stopping = cls()
        assert isinstance(signal, ShutdownSignal)
        return signal

    @property
    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Start the shutdown. Call this on the server's event loop."""
        if not self._is_set:
            self._is_set = True
            for callback in list(self._callbacks.values()):
                callback()

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on shutdown, immediately if it has begun. Return a function that unsubscribes."""
        if self._is_set:
            callback()
            return lambda: None
        ticket = object()
        self._callbacks[ticket] = callback

        def unsubscribe() -> None:
            self._callbacks.pop(ticket, None)

        return unsubscribe


def shutdown_response(request_id: str | None = None) -> Response:
    """Return the 503 response to requests that arrive during shutdown."""
    detail = "The server is shutting down: try again in a moment."
    return problem_response(
        503, "stopping", detail, request_id=request_id, headers={"Retry-After": str(RETRY_AFTER_SECONDS)}
    )
