"""Calendar arithmetic for date parsing: days, periods, annual dates and holidays.

Days are integers counted from 1970-01-01, which have no limits, raise no exceptions and are fast. Spans are half-open
pairs of days. They become microseconds only at the end, because only parts of a day and hours are finer than a day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Precision = Literal["hour", "day", "week", "weekend", "month", "season", "year", "range"]

HOUR = 3_600_000_000
DAY = 24 * HOUR
SATURDAY = 5

DayRange = tuple[int, int]

# Two leap days are at most eight years apart, and a search begins in the previous year.
_MAX_YEARS = 10

ResolvedSpan = tuple[int, int, Precision]
"""Start and end in microseconds, and the precision."""

_DAY_PARTS = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 24)}
_MONTHS_PER_UNIT = {"month": 1, "quarter": 3, "year": 12, "decade": 120}


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The time span that words mean, half-open, in microseconds since 1970 UTC. `text` is the words."""

    start: int
    end: int
    precision: Precision
    text: str


def day_number(year: int, month: int = 1, day: int = 1) -> int:
    """Return the number of a day of the Gregorian calendar. Months above 12 or below 1 continue in other years.

    >>> day_number(2023, 14) == day_number(2024, 2)
    True
    """
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_date(day: int) -> tuple[int, int, int]:
    """Return the year, month and day of a day number.

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
    """Return the weekday of a day number; Monday is 0."""
    return (day + 3) % 7


def month_length(year: int, month: int) -> int:
    """Return the number of days in a month."""
    return day_number(year, month + 1) - day_number(year, month)


def period(unit: str, day: int, offset: int) -> DayRange:
    """Return the day, week, weekend, month, quarter, year or decade of a day, shifted by `offset` units."""
    if unit == "day":
        return day + offset, day + offset + 1
    if unit in ("week", "weekend"):
        monday = day - weekday(day) + 7 * offset
        return (monday, monday + 7) if unit == "week" else (monday + SATURDAY, monday + 7)
    year, month, _ = civil_date(day)
    length = _MONTHS_PER_UNIT[unit]
    first = ((12 * year + month - 1) // length + offset) * length + 1
    return day_number(0, first), day_number(0, first + length)


def nth_weekday(year: int, month: int, which: int, nth: int) -> int:
    """Return the nth given weekday of a month, counted from the month's end if `nth` is negative.

    >>> civil_date(nth_weekday(2023, 11, 3, 4))
    (2023, 11, 23)
    """
    if nth < 0:
        after = day_number(year, month + 1)
        return after - 1 - (weekday(after - 1) - which) % 7 + 7 * (nth + 1)
    first = day_number(year, month)
    return first + (which - weekday(first)) % 7 + 7 * (nth - 1)


def easter(year: int) -> int:
    """Return Easter Sunday of the Gregorian calendar, computed with the anonymous algorithm.

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
    "christmas_eve": lambda year: day_number(year, 12, 24),
    "boxing_day": lambda year: day_number(year, 12, 26),
    "new_year": lambda year: day_number(year, 1, 1),
    "new_year_eve": lambda year: day_number(year, 12, 31),
    "halloween": lambda year: day_number(year, 10, 31),
    "valentine_day": lambda year: day_number(year, 2, 14),
    "thanksgiving": lambda year: nth_weekday(year, 11, 3, 4),
    "black_friday": lambda year: nth_weekday(year, 11, 3, 4) + 1,
    "easter": easter,
    "easter_monday": lambda year: easter(year) + 1,
    "good_friday": lambda year: easter(year) - 2,
    "independence_day": lambda year: day_number(year, 7, 4),
    "mother_day": lambda year: nth_weekday(year, 5, 6, 2),
    "father_day": lambda year: nth_weekday(year, 6, 6, 3),
    "labor_day": lambda year: nth_weekday(year, 9, 0, 1),
    "memorial_day": lambda year: nth_weekday(year, 5, 0, -1),
    "st_patrick_day": lambda year: day_number(year, 3, 17),
}


@dataclass(slots=True)
class AnnualPeriod:
    """A period that recurs every year. `year` is set if the words name it.

    A winter belongs to the year in which it begins. Some periods, such as 29 February, do not occur every year.
    """

    precision: Precision
    in_year: Callable[[int], DayRange | None]
    year: int | None = None

    def latest_begun(self, today: int) -> DayRange | None:
        return self._search(civil_date(today)[0], -1, lambda days: days[0] <= today)

    def latest_ended(self, today: int) -> DayRange | None:
        return self._search(civil_date(today)[0], -1, lambda days: days[1] <= today)

    def earliest_upcoming(self, today: int) -> DayRange | None:
        return self._search(civil_date(today)[0] - 1, 1, lambda days: days[0] > today)

    def earliest_unfinished(self, today: int) -> DayRange | None:
        return self._search(civil_date(today)[0] - 1, 1, lambda days: days[1] > today)

    def current(self, today: int) -> DayRange | None:
        """Return the period of this year, or the one in progress."""
        year = civil_date(today)[0]
        ongoing = self.in_year(year - 1)
        return ongoing if ongoing and ongoing[1] > today else self.in_year(year)

    def _search(self, year: int, step: int, fits: Callable[[DayRange], bool]) -> DayRange | None:
        years = range(year, year + step * _MAX_YEARS, step)
        return next((days for each in years if (days := self.in_year(each)) and fits(days)), None)


def annual_months(precision: Precision, first: int, count: int, year: int | None = None) -> AnnualPeriod:
    """Return `count` months of every year, from `first` on."""
    return AnnualPeriod(precision, lambda each: (day_number(each, first), day_number(each, first + count)), year)


def annual_days(precision: Precision, month: int, first: int, last: int, year: int | None) -> AnnualPeriod | None:
    """Return days of a month of every year, or None if they never exist, such as 30 February."""
    if not 1 <= first <= last <= month_length(2024, month):
        return None

    def in_year(each: int) -> DayRange | None:
        if last > 28 and last > month_length(each, month):
            return None
        return day_number(each, month, first), day_number(each, month, last) + 1

    return AnnualPeriod(precision, in_year, year)


def annual_holiday(name: str, year: int | None = None) -> AnnualPeriod:
    """Return a holiday of every year."""
    day_in = HOLIDAYS[name]
    return AnnualPeriod("day", lambda each: (day_in(each), day_in(each) + 1), year)


def shift_by_units(unit: Any, low: int, high: int, base: int) -> ResolvedSpan:
    """Return the time `low` to `high` units before or after a day: the whole unit, or from the nearest to the
    farthest."""
    name, factor, _ = unit
    low, high = low * factor, high * factor
    if name in ("hour", "minute"):
        length = HOUR if name == "hour" else HOUR // 60
        first, last = sorted(((base + low * length) // HOUR, (base + high * length) // HOUR))
        return first * HOUR, (last + 1) * HOUR, "hour" if first == last else "range"
    near, far = period(name, base // DAY, low), period(name, base // DAY, high)
    return to_span((min(near[0], far[0]), max(near[1], far[1])), _unit_precision(name) if low == high else "range")


def add_units(day: int, unit: str, steps: int) -> int:
    """Shift a day by units. If the target month is too short, return its last day."""
    if unit in ("day", "week"):
        return day + steps * (7 if unit == "week" else 1)
    months = steps * _MONTHS_PER_UNIT[unit]
    year, month, day_of_month = civil_date(day)
    return min(day_number(year, month + months, day_of_month), day_number(year, month + months + 1) - 1)


def to_span(days: DayRange, precision: Precision) -> ResolvedSpan:
    """Convert days to microseconds."""
    return days[0] * DAY, days[1] * DAY, precision


def span_in_day(day: int, part: str | None) -> ResolvedSpan:
    """Return a day, or its morning, afternoon, evening or night."""
    if part is None:
        return day * DAY, (day + 1) * DAY, "day"
    begins, ends = _DAY_PARTS[part]
    return day * DAY + begins * HOUR, day * DAY + ends * HOUR, "hour"


def unit_span(unit: str, day: int, offset: int = 0) -> ResolvedSpan:
    """Return the unit that contains a day, shifted by `offset` units."""
    return to_span(period(unit, day, offset), _unit_precision(unit))


def _unit_precision(unit: str) -> Precision:
    return "range" if unit in ("quarter", "decade") else unit  # type: ignore[return-value]


def span_part(span: ResolvedSpan, which: int, parts: int) -> ResolvedSpan:
    """Return the early, middle or late part of a span: thirds, or days 1-10, 11-20 and the rest of a month. A day stays
    whole."""
    start, end = span[0] // DAY, span[1] // DAY
    if end - start < 5:
        return span
    (year, month, day), (last_year, last_month, last_day) = civil_date(start), civil_date(end)
    months = 12 * (last_year - year) + last_month - month
    if day == last_day == 1 and months > 1 and months % parts == 0:
        first = month + which * months // parts
        return to_span((day_number(year, first), day_number(year, first + months // parts)), "range")
    length = 10 if span[2] == "month" and parts == 3 else (end - start) // parts
    begins = start + which * length
    return to_span((begins, end if which == parts - 1 else begins + length), "range")


def nearby_weekend(day: int, count: int) -> DayRange:
    """Return the weekend `count` weekends before or after a day, not counting one that contains the day."""
    if count < 0:
        monday = day - weekday(day) + 7 * (count + 1)
        return monday - 2, monday
    saturday = day + ((SATURDAY - weekday(day)) % 7 or 7) + 7 * (count - 1)
    return saturday, saturday + 2
