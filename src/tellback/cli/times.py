"""Moments as people write them on a command line."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import typer

from tellback.types.times import utc_now

_AGO = re.compile(r"(\d{1,5})\s*(m|h|d|w|mo|y)(?:\s+ago)?")
_UNIT_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}
_PERIOD = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
TIME_METAVAR = "2026-03|yesterday|2w"


def parse_period(text: str, now: datetime) -> tuple[datetime, datetime]:
    """The first and the last moment of what a text names, in UTC unless it says otherwise.

    >>> first, last = parse_period("2026-02", datetime(2026, 5, 1, tzinfo=UTC))
    >>> f"{first:%d %b}", f"{last:%d %b %H:%M}"
    ('01 Feb', '28 Feb 23:59')
    """
    lowered = text.strip().lower()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if lowered == "now":
        return now, now
    if lowered in ("today", "yesterday"):
        first = today - timedelta(days=lowered == "yesterday")
        return first, _instant_before(first + timedelta(days=1))
    if ago := _AGO.fullmatch(lowered):
        moment = now - timedelta(seconds=int(ago[1]) * _UNIT_SECONDS[ago[2]])
        return moment, moment
    if found := _PERIOD.fullmatch(lowered):
        return _calendar_period(*(None if part is None else int(part) for part in found.groups()))
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment, moment


def _calendar_period(year: int | None, month: int | None, day: int | None) -> tuple[datetime, datetime]:
    assert year is not None
    first = datetime(year, month or 1, day or 1, tzinfo=UTC)
    if day is not None:
        return first, _instant_before(first + timedelta(days=1))
    last_month = month or 12
    last = datetime(year, last_month, calendar.monthrange(year, last_month)[1], tzinfo=UTC)
    return first, _instant_before(last + timedelta(days=1))


def _instant_before(moment: datetime) -> datetime:
    return moment - timedelta(microseconds=1)


def _make_parser(index: int) -> Callable[[str], datetime]:
    def parse(text: str) -> datetime:
        try:
            return parse_period(text, utc_now())[index]
        except (ValueError, OverflowError):
            raise typer.BadParameter(
                f"{text!r} is no time: write a date such as 2026-03-01 or 2026-03, a moment such as"
                " 2026-03-01T18:30, yesterday, or how long ago, such as 3d or 2w."
            ) from None

    return parse


parse_period_start = _make_parser(0)
"""Reads an option: the first moment of what it names."""

parse_period_end = _make_parser(1)
"""Reads an option: the last moment of what it names."""
