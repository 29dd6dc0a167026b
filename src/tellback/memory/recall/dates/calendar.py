"""Calendar arithmetic for date parsing: days, periods, annual dates and holidays.

Days are plain integers counted from 1970-01-01: no limits, no exceptions, a few hundred nanoseconds a call. Spans are
half-open pairs of days until the very end, where they become microseconds: only parts of a day and hours are finer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Precision = Literal["hour", "day", "week", "weekend", "month", "season", "year", "range"]

HOUR = 3_600_000_000
DAY = 24 * HOUR
MONDAY, SATURDAY = 0, 5

DayRange = tuple[int, int]

# Leap days come back after eight years at the latest.
_MAX_YEARS = 9

AnnualKind = Literal["month", "date", "dates", "season", "quarter", "holiday"]
_PRECISION_BY_KIND: Mapping[AnnualKind, Precision] = {
    "month": "month",
    "date": "day",
    "dates": "range",
    "season": "season",
    "quarter": "range",
    "holiday": "day",
}


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A stretch of time some words mean: microseconds since 1970 UTC, half-open; `text` is the words."""

    start: int
    end: int
    precision: Precision
    text: str


def day_number(year: int, month: int = 1, day: int = 1) -> int:
    """The number of a day of the Gregorian calendar; months past 12 or below 1 run into other years.

    >>> day_number(2023, 14) == day_number(2024, 2)
    True
    """
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_date(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day's number.

    >>> civil_date(day_number(2024, 2, 29))
    (2024, 2, 29)
    """
    era, day_of_era = divmod(day + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return year + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def weekday(day: int) -> int:
    """Monday is 0."""
    return (day + 3) % 7


def month_length(year: int, month: int) -> int:
    """How many days a month has."""
    return day_number(year, month + 1) - day_number(year, month)


def period(unit: str, day: int, offset: int) -> DayRange:
    """The day, week, weekend, month, quarter, year or decade that holds a day, or one so many before or after."""
    if unit == "day":
        return day + offset, day + offset + 1
    if unit in ("week", "weekend"):
        monday = day - weekday(day) + 7 * offset
        return (monday, monday + 7) if unit == "week" else (monday + SATURDAY, monday + 7)
    year, month, _ = civil_date(day)
    if unit == "month":
        return day_number(year, month + offset), day_number(year, month + offset + 1)
    if unit == "quarter":
        first = (month - 1) // 3 * 3 + 1 + 3 * offset
        return day_number(year, first), day_number(year, first + 3)
    if unit == "year":
        return day_number(year + offset), day_number(year + offset + 1)
    first = year // 10 * 10 + 10 * offset
    return day_number(first), day_number(first + 10)


def nth_weekday(year: int, month: int, which: int, nth: int) -> int:
    """The nth such weekday of a month, counted from its end when negative.

    >>> civil_date(nth_weekday(2023, 11, 3, 4))
    (2023, 11, 23)
    """
    if nth < 0:
        after = day_number(year, month + 1)
        return after - 1 - (weekday(after - 1) - which) % 7 + 7 * (nth + 1)
    first = day_number(year, month)
    return first + (which - weekday(first)) % 7 + 7 * (nth - 1)


def easter(year: int) -> int:
    """Easter Sunday of the Gregorian calendar, by the anonymous algorithm.

    >>> civil_date(easter(2024))
    (2024, 3, 31)
    """
    century, year_of_century = divmod(year, 100)
    golden = year % 19
    moon = (19 * golden + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    days = (32 + 2 * (century % 4) + 2 * (year_of_century // 4) - moon - year_of_century % 4) % 7
    correction = (golden + 11 * moon + 22 * days) // 451
    month, day = divmod(moon + days - 7 * correction + 114, 31)
    return day_number(year, month, day + 1)


HOLIDAYS: Mapping[str, Callable[[int], int]] = {
    "christmas": lambda year: day_number(year, 12, 25),
    "christmas eve": lambda year: day_number(year, 12, 24),
    "boxing day": lambda year: day_number(year, 12, 26),
    "new year": lambda year: day_number(year, 1, 1),
    "new year's eve": lambda year: day_number(year, 12, 31),
    "halloween": lambda year: day_number(year, 10, 31),
    "valentine's day": lambda year: day_number(year, 2, 14),
    "thanksgiving": lambda year: nth_weekday(year, 11, 3, 4),
    "black friday": lambda year: nth_weekday(year, 11, 3, 4) + 1,
    "easter": easter,
    "easter monday": lambda year: easter(year) + 1,
    "good friday": lambda year: easter(year) - 2,
    "independence day": lambda year: day_number(year, 7, 4),
    "mother's day": lambda year: nth_weekday(year, 5, 6, 2),
    "father's day": lambda year: nth_weekday(year, 6, 6, 3),
    "labor day": lambda year: nth_weekday(year, 9, 0, 1),
    "memorial day": lambda year: nth_weekday(year, 5, 0, -1),
    "st patrick's day": lambda year: day_number(year, 3, 17),
}


@dataclass(slots=True)
class AnnualPeriod:
    """Something that comes every year; `year` when the words say which."""

    kind: AnnualKind
    number: int = 0
    first: int = 0
    last: int = 0
    name: str = ""
    year: int | None = None

    @property
    def precision(self) -> Precision:
        return _PRECISION_BY_KIND[self.kind]

    def is_possible(self) -> bool:
        """No year has a 30 February."""
        return self.kind not in ("date", "dates") or 1 <= self.first <= self.last <= month_length(2024, self.number)

    def in_year(self, year: int) -> DayRange | None:
        """Its days in a year, if that has it: a winter belongs to the year it begins in."""
        if self.kind == "month":
            return day_number(year, self.number), day_number(year, self.number + 1)
        if self.kind in ("date", "dates"):
            if self.last > 28 and self.last > month_length(year, self.number):
                return None
            return day_number(year, self.number, self.first), day_number(year, self.number, self.last) + 1
        if self.kind == "season":
            return day_number(year, 3 + 3 * self.number), day_number(year, 6 + 3 * self.number)
        if self.kind == "quarter":
            return day_number(year, 3 * self.number - 2), day_number(year, 3 * self.number + 1)
        day = HOLIDAYS[self.name](year)
        return day, day + 1

    def latest_begun(self, today: int) -> DayRange | None:
        """The latest that has begun."""
        return self._search_back(civil_date(today)[0], lambda days: days[0] <= today)

    def latest_ended(self, today: int) -> DayRange | None:
        """The latest that is over."""
        return self._search_back(civil_date(today)[0], lambda days: days[1] <= today)

    def earliest_upcoming(self, today: int) -> DayRange | None:
        """The earliest that has not begun."""
        return self._search_forward(civil_date(today)[0] - 1, lambda days: days[0] > today)

    def earliest_unfinished(self, today: int) -> DayRange | None:
        """The earliest that is not over."""
        return self._search_forward(civil_date(today)[0] - 1, lambda days: days[1] > today)

    def current(self, today: int) -> DayRange | None:
        """The one of this year, or the one going on."""
        year = civil_date(today)[0]
        ongoing = self.in_year(year - 1)
        return ongoing if ongoing and ongoing[1] > today else self.in_year(year)

    def _search_back(self, year: int, fits: Callable[[DayRange], bool]) -> DayRange | None:
        return next((days for back in range(_MAX_YEARS) if (days := self.in_year(year - back)) and fits(days)), None)

    def _search_forward(self, year: int, fits: Callable[[DayRange], bool]) -> DayRange | None:
        return next(
            (days for ahead in range(_MAX_YEARS + 1) if (days := self.in_year(year + ahead)) and fits(days)), None
        )
