"""What the model calls of a task have cost so far, whatever becomes of the task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tellback.types.replies import ChatUsage

_SPENT: ContextVar[list[ChatUsage] | None] = ContextVar("tellback_spent", default=None)


@contextmanager
def spending() -> Iterator[list[ChatUsage]]:
    """A list that grows with each call made within, also in the tasks that are started there.

    >>> with spending() as spent:
    ...     spend(ChatUsage(input_tokens=5))
    >>> spent[0].input_tokens
    5
    """
    spent: list[ChatUsage] = []
    token = _SPENT.set(spent)
    try:
        yield spent
    finally:
        _SPENT.reset(token)


def spend(usage: ChatUsage) -> None:
    """Note what a call cost, if anyone wants to know."""
    spent = _SPENT.get()
    if spent is not None:
        spent.append(usage)
