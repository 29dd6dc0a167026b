"""The run's event stream: what is happening while a turn runs, for whoever listens in the same context.

Listeners are found through a context variable, so concurrent runs never see each other's events, and
emitting with nobody listening costs one look-up and is not an error.
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
    """Hand every event emitted inside the block (and in tasks started there) to `listener`.

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
    """Whether anyone listens in this context: what nobody hears need not be put together.

    >>> has_listeners()
    False
    """
    return bool(_listeners.get())


def emit(type: str, data: Any) -> None:
    """Send an event to the listeners of this context. A listener that raises is logged; the run goes on.

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
            log.exception("a listener failed on %s", type)
