"""What a server does when it is about to stop: what runs may end, what would go on for ever is let go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import Response

from tellback.server.problems import problem

RETRY_SECONDS = 1


class Stopping:
    """Whether a server is about to stop. Feeds then end, turns that run are let finish, and no stream begins.

    >>> stopping = Stopping()
    >>> forget = stopping.tell(lambda: print("over"))
    >>> stopping.set()
    over
    >>> stopping.is_set
    True
    """

    def __init__(self) -> None:
        self._is_set = False
        self._told: dict[object, Callable[[], None]] = {}

    @classmethod
    def of(cls, app: Any) -> Stopping:
        """The one of an application, in its `state.stopping`."""
        found = getattr(app.state, "stopping", None)
        if found is None:
            found = app.state.stopping = cls()
        assert isinstance(found, Stopping)
        return found

    @property
    def is_set(self) -> bool:
        """Whether it is."""
        return self._is_set

    def set(self) -> None:
        """From now on it is. To be called on the server's event loop."""
        if not self._is_set:
            self._is_set = True
            for callback in list(self._told.values()):
                callback()

    def tell(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it when the server is about to stop, at once if it is already; what is given takes that back."""
        if self._is_set:
            callback()
            return lambda: None
        ticket = object()
        self._told[ticket] = callback

        def forget() -> None:
            self._told.pop(ticket, None)

        return forget


def refusal(request_id: str | None = None) -> Response:
    """The answer to what would begin too late."""
    detail = "The server is about to stop: try again in a moment, and another one answers."
    return problem(503, "stopping", detail, request_id=request_id, headers={"Retry-After": str(RETRY_SECONDS)})
