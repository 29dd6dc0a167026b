"""Resolve time expressions relative to a reference time: which Friday, which May and which day are meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tellback.memory.recall.dates.calendar import (
    DAY,
    HOUR,
    SATURDAY,
    AnnualPeriod,
    DayRange,
    Precision,
    civil_date,
    day_number,
    period,
    weekday,
)
from tellback.memory.recall.dates.lexer import TaggedText

ResolvedSpan = tuple[int, int, Precision]
"""Microseconds from and to, and how exact that is."""

EARLIEST, LATEST = day_number(1) * DAY, day_number(10_000) * DAY
_DAY_PARTS = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 24)}
_MONTHS_PER_UNIT = {"month": 1, "quarter": 3, "year": 12, "decade": 120}


@dataclass(slots=True)
class BareWeekday:
    """A weekday without a word that says which."""

    number: int
    part: str | None


TimeExpression = AnnualPeriod | BareWeekday | ResolvedSpan
"""What words mean so far: "May" waits for a year until the whole sentence is read."""


class ReferenceTime:
    """A moment, and the text that is read from it."""

    __slots__ = ("now", "tagged_text", "today")

    def __init__(self, tagged_text: TaggedText, now: int) -> None:
        self.tagged_text = tagged_text
        self.now = min(max(now, EARLIEST), LATEST - 1)
        self.today = self.now // DAY

    def resolve(self, expression: TimeExpression, position: int) -> ResolvedSpan | None:
        """The stretch that is meant by words at a position of the text, if it exists."""
        if type(expression) is tuple:
            return expression
        is_future = self.tagged_text.is_future(position)
        if isinstance(expression, AnnualPeriod):
            if expression.year is not None:
                days = expression.in_year(expression.year)
            else:
                days = expression.earliest_unfinished(self.today) if is_future else expression.latest_begun(self.today)
            return to_span(days, expression.precision) if days else None
        assert isinstance(expression, BareWeekday)
        return span_in_day(self.resolve_weekday("N" if is_future else "l", expression.number), expression.part)

    def resolve_weekday(self, which: str, number: int) -> int:
        """The day of the last (`l`, `P`), next (`N`, `C`) or this week's (`t`) such weekday."""
        today = weekday(self.today)
        if which in "lP":
            return self.today - ((today - number) % 7 or 7)
        if which in "NC":
            return self.today + ((number - today) % 7 or 7)
        return self.today - today + number

    def resolve_annual(self, which: str, annual: AnnualPeriod) -> DayRange | None:
        """The last, next or this year's such month, season or holiday."""
        if which in "lP":
            return annual.latest_ended(self.today)
        return annual.earliest_upcoming(self.today) if which in "NC" else annual.current(self.today)

    def find_year(self, tags: str, items: Any) -> int | None:
        """The year among some words."""
        for index, tag in enumerate(tags):
            if tag == "y":
                return int(items[index][0])
            if tag == "Y":
                return civil_date(self.today)[0] + int(items[index][0])
        return None


def shift_by_units(unit: Any, low: int, high: int, base: int) -> ResolvedSpan:
    """So many units before or after a moment: the whole unit there, or all from the nearest to the farthest."""
    name, factor, _ = unit
    low, high = low * factor, high * factor
    if name in ("hour", "minute"):
        length = HOUR if name == "hour" else HOUR // 60
        first, last = sorted(((base + low * length) // HOUR, (base + high * length) // HOUR))
        return first * HOUR, (last + 1) * HOUR, "hour" if first == last else "range"
    near, far = period(name, base // DAY, low), period(name, base // DAY, high)
    precision: Precision = unit_precision(name) if low == high else "range"
    return to_span((min(near[0], far[0]), max(near[1], far[1])), precision)


def add_units(day: int, unit: str, steps: int) -> int:
    """The same day so many units away; the last of the month where there is no such day."""
    if unit in ("day", "week"):
        return day + steps * (7 if unit == "week" else 1)
    months = steps * _MONTHS_PER_UNIT[unit]
    year, month, day_of_month = civil_date(day)
    return min(day_number(year, month + months, day_of_month), day_number(year, month + months + 1) - 1)


def to_span(days: DayRange, precision: Precision) -> ResolvedSpan:
    """Days as microseconds."""
    return days[0] * DAY, days[1] * DAY, precision


def span_in_day(day: int, part: str | None) -> ResolvedSpan:
    """A day, or its morning, afternoon, evening or night."""
    if part is None:
        return day * DAY, (day + 1) * DAY, "day"
    begins, ends = _DAY_PARTS[part]
    return day * DAY + begins * HOUR, day * DAY + ends * HOUR, "hour"


def unit_precision(unit: str) -> Precision:
    """How exact a unit is."""
    return "range" if unit in ("quarter", "decade") else unit  # type: ignore[return-value]


def span_part(span: ResolvedSpan, which: int, parts: int) -> ResolvedSpan:
    """Early, mid or late: a third, in a month the days 1 to 10, 11 to 20 and the rest; of a day the whole day."""
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
    """The weekend so many before or after a day, without the one the day is part of."""
    if count < 0:
        monday = day - weekday(day) + 7 * (count + 1)
        return monday - 2, monday
    saturday = day + ((SATURDAY - weekday(day)) % 7 or 7) + 7 * (count - 1)
    return saturday, saturday + 2
