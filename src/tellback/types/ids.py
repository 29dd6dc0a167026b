"""Ids (`conv_…`, sortable by creation), timestamps (UTC, stored as microseconds), and names folded for comparison.

Caches that contain users' text register here, so that an erasure can clear them.
"""

from __future__ import annotations

import functools
import re
import secrets
import threading
import time
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

MAX_CACHED_LENGTH = 100
SLUG_LENGTH = 40

_RANDOM_BITS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NON_WORD = re.compile(r"[\W_]+")
_ACCENTS = re.compile("([a-z\u00df-\u024f\u0370-\u03ff])[\u0300-\u036f]+")
"""Diacritics that people often omit: those of Latin and Greek letters. In other scripts they change the letter."""

_cache_clearers: list[Callable[[], object]] = []
_lock = threading.Lock()
_last_number = 0


def next_id(id: str) -> str:
    """Return the id after `id`; an empty string if it is not an id.

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
    """Return a new id: 48 bits of time and 64 random bits, in hexadecimal.

    Ids of one process strictly increase, even within a millisecond and when the clock is set back.

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


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def as_utc(moment: datetime | str) -> datetime:
    """Convert an aware datetime, or an ISO 8601 string with an offset, to UTC.

    >>> as_utc("2026-03-01T12:00:00+02:00").isoformat()
    '2026-03-01T10:00:00+00:00'
    """
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        raise TypeError(f"must be a datetime or an ISO 8601 string, got {moment!r:.80}")
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no timezone: add one, such as +00:00")
    return moment.astimezone(UTC)


def to_micros(moment: datetime) -> int:
    """Return the exact number of microseconds since 1970.

    >>> to_micros(as_utc("1970-01-01T00:00:01Z"))
    1000000
    """
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Convert microseconds since 1970 to a datetime: the inverse of `to_micros`.

    >>> from_micros(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return _EPOCH + timedelta(0, 0, micros)


def now_micros() -> int:
    """Return the machine's time in microseconds since 1970, for delays and leases."""
    return int(time.time() * 1_000_000)


def register_cache(clear: Callable[[], object]) -> None:
    """Register the `clear` function of a cache that contains users' text. An erasure calls it."""
    _cache_clearers.append(clear)


def clear_text_caches() -> None:
    """Clear all registered caches."""
    for clear in _cache_clearers:
        clear()


def fold_name(name: str) -> str:
    """Fold a name for comparison: case, spaces and diacritics.

    >>> fold_name("  José   MARÍA ") == fold_name("jose maria")
    True
    """
    # Names repeat, so they are cached. Questions are folded too, but are long and rarely repeat.
    return _fold_cached(name) if len(name) <= MAX_CACHED_LENGTH else _fold(name)


def slug(text: str) -> str:
    """Convert a text to a part of an id: lower case, words joined by `_`. Letters of other alphabets are kept.

    >>> slug("User Onboarding!")
    'user_onboarding'
    """
    return _NON_WORD.sub("_", fold_name(text)).strip("_")[:SLUG_LENGTH].strip("_")


def _fold(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    without_accents = _ACCENTS.sub(r"\1", decomposed)
    return " ".join(without_accents.casefold().split())


_fold_cached = functools.lru_cache(maxsize=16_384)(_fold)
register_cache(_fold_cached.cache_clear)
