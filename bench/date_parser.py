"""Parse dates as chat exports write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

FORMATS = (
    "%I:%M %p on %d %B %Y",
    "%I:%M:%S %p on %d %B %Y",
    "%H:%M on %d %B %Y",
    "%I:%M %p on %d %b %Y",
    "%H:%M on %d %b %Y",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%d.%m.%y %H:%M:%S",
    "%d.%m.%y %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M",
    "%Y/%m/%d",
    *(
        f"{day}{time}"
        for day in ("%d %B %Y", "%d %b %Y", "%B %d %Y", "%b %d %Y")
        for time in ("", " %H:%M:%S", " %H:%M", " %I:%M %p", " %I:%M:%S %p", " at %I:%M %p", " at %H:%M")
    ),
    # Up to the 12th, day and month are ambiguous: read the month first, unless that is impossible.
    *(
        f"{day}{time}"
        for day in ("%m/%d/%Y", "%m/%d/%y", "%d/%m/%Y", "%d/%m/%y")
        for time in (" %H:%M:%S", " %H:%M", " %I:%M %p", " %I:%M:%S %p", "")
    ),
)
_NOISE = re.compile(r"\([^)]*\)|\b(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?,?", re.I)
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b", re.IGNORECASE)
_NAMED_MONTH = re.compile(r"(?<=[a-z])-(?=\d)|(?<=\d)-(?=[a-z])|(?<=\d)-(?=\d{4}$)", re.IGNORECASE)
_LATEST_SECONDS = 1e11
"""Larger numbers are milliseconds."""


def read_moment(value: Any) -> datetime | None:
    """Parse a moment and return it in UTC, or None if the text has no known format. Without a timezone, UTC is assumed.

    >>> read_moment("1:56 pm on 8 May, 2023").isoformat()
    '2023-05-08T13:56:00+00:00'
    >>> read_moment("29.12.2023, 01:37:25").isoformat()
    '2023-12-29T01:37:25+00:00'
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return _since_1970(value)
    text = str(value).strip()
    if not text:
        return None
    if re.fullmatch(r"\d{9,13}(\.\d+)?", text):
        return _since_1970(float(text))
    try:
        return _utc(datetime.fromisoformat(text))
    except ValueError:
        pass
    plain = _NOISE.sub(" ", text)
    plain = _NAMED_MONTH.sub(" ", _ORDINAL.sub("", plain)).replace(",", " ").replace("a.m.", "am").replace("p.m.", "pm")
    plain = " ".join(plain.split())
    for format in FORMATS:
        try:
            return _utc(datetime.strptime(plain, format))
        except ValueError:
            continue
    return None


def _since_1970(seconds: float) -> datetime | None:
    if abs(seconds) > _LATEST_SECONDS:
        seconds /= 1000
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
