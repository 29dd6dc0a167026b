"""What stands in an export's fields, whatever that is: exports are JSON that nobody has promised anything about."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tellback.types.jsontext import storable
from tellback.types.times import utc_now

EARLIEST, AHEAD = datetime(1990, 1, 1, tzinfo=UTC), timedelta(days=1)
"""A time before the one, or further ahead than the other, is a mistake, and would date memories by it."""

MILLISECONDS = 100_000_000_000
"""Seconds since 1970 have not come so far; whoever writes such a number counts milliseconds."""

_DIGITS = re.compile(r"-?\d+(\.\d+)?")


def moment(value: Any) -> datetime | None:
    """A time, as ISO 8601 (UTC if it says no timezone) or as a number since 1970; None for what is none.

    >>> moment(1_700_000_000.5).isoformat()
    '2023-11-14T22:13:20.500000+00:00'
    >>> moment("2024-05-01 10:00:00").isoformat()
    '2024-05-01T10:00:00+00:00'
    >>> moment(float("nan")) is None
    True
    """
    try:
        if isinstance(value, str):
            text = value.strip()
            found = _counted(float(text)) if _DIGITS.fullmatch(text) else datetime.fromisoformat(text)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found = _counted(value)
        else:
            return None
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found if EARLIEST <= found < utc_now() + AHEAD else None


def _counted(number: float) -> datetime:
    if not math.isfinite(number):
        raise ValueError("not a time")
    seconds = number / 1_000 if abs(number) >= MILLISECONDS else number
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def words(value: Any) -> str:
    """A text, without what no database can hold; nothing for what is none."""
    return storable(value).strip() if isinstance(value, str) else ""


def short(value: Any, length: int) -> str | None:
    """A text of a bounded length, or None if there is none."""
    return words(value)[:length].strip() or None


def mapping(value: Any) -> Mapping[str, Any]:
    """An object, empty if it is none."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """A list, empty if it is none."""
    return value if isinstance(value, list) else []


def first(value: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that holds something."""
    return next((value[name] for name in names if value.get(name) not in (None, "", [], {})), None)


def named_file(name: Any) -> str:
    """The place of a file that was sent along.

    >>> named_file("report.pdf"), named_file(None)
    ('[file: report.pdf]', '[file]')
    """
    told = short(name, 200)
    return f"[file: {' '.join(told.split())}]" if told else "[file]"
