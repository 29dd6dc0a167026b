"""What a server does when it is about to stop: what runs may end, what would go on for ever is let go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from tellback.server.problems import problem_response

RETRY_AFTER_SECONDS = 1


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
        """Whether it is."""
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
