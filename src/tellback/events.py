"""Events of a running turn, sent to listeners in the same context.

Listeners are stored in a context variable, so concurrent runs do not receive each other's events. Without a listener,
`emit` costs one lookup.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("tellback.events")


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run: a label such as "ai:chat:step", and its data.

    >>> RunEvent(type="ai:chat:step", data={"iteration": 1}).type
    'ai:chat:step'
    """

    type: str
    data: Any


Listener = Callable[[RunEvent], None]

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("tellback_listeners", default=())


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Call `listener` with every event that is emitted inside the block, and in tasks started there.

    >>> seen = []
    >>> with listen(seen.append):
    ...     emit("my:progress", 0.5)
    >>> seen
    [RunEvent(type='my:progress', data=0.5)]
    """
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


def has_listeners() -> bool:
    """Whether this context has a listener. Check it before you build an expensive event.

    >>> has_listeners()
    False
    """
    return bool(_listeners.get())


def emit(type: str, data: Any) -> None:
    """Send an event to the listeners of this context. If a listener raises, the error is logged and the run continues.

    >>> emit("my:progress", 1.0)
    """
    listeners = _listeners.get()
    if not listeners:
        return
    event = RunEvent(type, data)
    for listener in listeners:
        try:
            listener(event)
        except Exception:
            log.exception("A listener failed on event %s", type)
