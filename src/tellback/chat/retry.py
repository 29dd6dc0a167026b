"""When and how long to wait before a failed call is made again."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Mapping

INITIAL_DELAY = 0.5
MAX_DELAY = 8.0
MAX_RETRY_AFTER = 60.0
"""A provider that asks for a longer wait than this is not waited for: the caller, or a backup model, decides."""

RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})


def backoff(attempt: int, retry_after: float | None = None) -> float:
    """Seconds to wait before attempt `attempt + 1`: doubling with jitter, and never less than the provider asked."""
    delay = min(INITIAL_DELAY * 2.0 ** min(attempt, 10), MAX_DELAY)
    delay *= random.uniform(0.5, 1.0)
    return delay if retry_after is None else max(delay, retry_after)


def is_acceptable_wait(retry_after: float | None) -> bool:
    """Whether the provider's own wait is short enough to sit out."""
    return retry_after is None or retry_after <= MAX_RETRY_AFTER


def parse_retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Seconds from `retry-after-ms` or `retry-after`, which is a number or a date."""
    if headers is None:
        return None
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1000, 0.0)
    value = headers.get("retry-after")
    seconds = _parse_number(value)
    if seconds is not None:
        return max(seconds, 0.0)
    date = email.utils.parsedate_tz(value) if value else None
    return None if date is None else max(email.utils.mktime_tz(date) - time.time(), 0.0)


def _parse_number(value: str | None) -> float | None:
    try:
        number = None if value is None else float(value)
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None
