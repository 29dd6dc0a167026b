"""What stands in an export's fields, whatever that is: exports are JSON that nobody has promised anything about."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tellback.types.jsontext import make_storable
from tellback.types.times import utc_now

EARLIEST_TIME, MAX_AHEAD = datetime(1990, 1, 1, tzinfo=UTC), timedelta(days=1)
"""A time before the one, or further ahead than the other, is a mistake, and would date memories by it."""

MIN_EPOCH_MILLISECONDS = 100_000_000_000
"""Seconds since 1970 have not come so far; whoever writes such a number counts milliseconds."""

_EPOCH_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def parse_time(value: Any) -> datetime | None:
    """A time, as ISO 8601 (UTC if it says no timezone) or as a number since 1970; None for what is none.

    >>> parse_time(1_700_000_000.5).isoformat()
    '2023-11-14T22:13:20.500000+00:00'
    >>> parse_time("2024-05-01 10:00:00").isoformat()
    '2024-05-01T10:00:00+00:00'
    >>> parse_time(float("nan")) is None
    True
    """
    try:
        if isinstance(value, str):
            text = value.strip()
            parsed = _from_epoch(float(text)) if _EPOCH_NUMBER.fullmatch(text) else datetime.fromisoformat(text)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            parsed = _from_epoch(value)
        else:
            return None
        parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return parsed if EARLIEST_TIME <= parsed < utc_now() + MAX_AHEAD else None


def _from_epoch(number: float) -> datetime:
    if not math.isfinite(number):
        raise ValueError("not a time")
    seconds = number / 1_000 if abs(number) >= MIN_EPOCH_MILLISECONDS else number
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def parse_text(value: Any) -> str:
    """A text, without what no database can hold; nothing for what is none."""
    return make_storable(value).strip() if isinstance(value, str) else ""


def parse_short_text(value: Any, length: int) -> str | None:
    """A text of a bounded length, or None if there is none."""
    return parse_text(value)[:length].strip() or None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """An object, empty if it is none."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """A list, empty if it is none."""
    return value if isinstance(value, list) else []


def first_field(value: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that holds something."""
    return next((value[field] for field in names if value.get(field) not in (None, "", [], {})), None)


def file_placeholder(name: Any) -> str:
    """The place of a file that was sent along.

    >>> file_placeholder("report.pdf"), file_placeholder(None)
    ('[file: report.pdf]', '[file]')
    """
    short_name = parse_short_text(name, 200)
    return f"[file: {' '.join(short_name.split())}]" if short_name else "[file]"
