"""Dates as models write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_YEAR_OR_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
FIRST_YEAR = 1000
"""What is dated before is no date of anyone's life."""

_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def parse_period(text: str) -> tuple[datetime, datetime]:
    """When a year, a month or a date begins and ends; a moment does both at once.

    Raises ValueError for what is no date, or before `FIRST_YEAR`.

    >>> [str(moment.date()) for moment in parse_period("2026-02")]
    ['2026-02-01', '2026-03-01']
    """
    begins, ends = _parse_range(text)
    if begins.year < FIRST_YEAR:
        raise ValueError(f"{text} is before the year {FIRST_YEAR}")
    return begins, ends


def _parse_range(text: str) -> tuple[datetime, datetime]:
    if found := _YEAR_OR_MONTH.match(text):
        year, month = int(found[1]), int(found[2] or 1)
        begins = datetime(year, month, 1, tzinfo=UTC)
        return begins, _first_of_month(year + 1, 1) if found[2] is None else _first_of_month(year, month + 1)
    moment = datetime.fromisoformat(text)
    try:
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        return moment, moment + timedelta(days=1) if _DATE.match(text) else moment
    except OverflowError:
        raise ValueError(f"{text} is out of range") from None


def _first_of_month(year: int, month: int) -> datetime:
    if month > 12:
        year, month = year + 1, 1
    return _LAST_MOMENT if year > datetime.max.year else datetime(year, month, 1, tzinfo=UTC)
