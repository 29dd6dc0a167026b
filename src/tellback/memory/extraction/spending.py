"""What the model calls of a task have cost so far, whatever becomes of the task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tellback.types.replies import ChatUsage

_TRACKED_USAGE: ContextVar[list[ChatUsage] | None] = ContextVar("tellback_spent", default=None)


@contextmanager
def track_usage() -> Iterator[list[ChatUsage]]:
    """A list that grows with each call made within, also in the tasks that are started there.

    >>> with track_usage() as spent:
    ...     report_usage(ChatUsage(input_tokens=5))
    >>> spent[0].input_tokens
    5
    """
    tracked: list[ChatUsage] = []
    token = _TRACKED_USAGE.set(tracked)
    try:
        yield tracked
    finally:
        _TRACKED_USAGE.reset(token)


def report_usage(usage: ChatUsage) -> None:
    """Note what a call cost, if anyone wants to know."""
    tracked = _TRACKED_USAGE.get()
    if tracked is not None:
        tracked.append(usage)
