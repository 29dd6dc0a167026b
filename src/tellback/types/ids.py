"""Ids that say what they name and sort by when they were made: `conv_…`, `msg_…`."""

from __future__ import annotations

import secrets
import threading
import time

_RANDOM_BITS = 64

_lock = threading.Lock()
_last_number = 0


def next_id(id: str) -> str:
    """The next id after one that was made before; nothing for what is none.

    >>> next_id("conv_0f")
    'conv_10'
    >>> next_id("")
    ''
    """
    prefix, _, number = id.rpartition("_")
    try:
        return f"{prefix}_{int(number, 16) + 1:0{len(number)}x}"
    except ValueError:
        return ""


def new_id(prefix: str) -> str:
    """A new id: 48 bits of time and 64 of chance, in hexadecimal.

    Those of one process strictly increase, also within a millisecond and when the clock is set back.

    >>> first, second = new_id("msg"), new_id("msg")
    >>> first < second and first.startswith("msg_")
    True
    """
    global _last_number
    now = time.time_ns() // 1_000_000
    with _lock:
        number = _last_number + 1
        if number >> _RANDOM_BITS < now:
            # The top random bit stays clear, so that counting up within a millisecond has room.
            number = now << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS - 1)
        _last_number = number
    return f"{prefix}_{number:028x}"
