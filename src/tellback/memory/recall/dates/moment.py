"""The moment a text is read from: which Friday, which May and which day are meant, as seen from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tellback.memory.recall.dates.civil import DAY, HOUR, SATURDAY, Days, civil, day_of, period, weekday
from tellback.memory.recall.dates.lexer import Tagged
from tellback.memory.recall.dates.values import Precision
from tellback.memory.recall.dates.yearly import Yearly

Fixed = tuple[int, int, Precision]
"""Microseconds from and to, and how exact that is."""

FIRST, LAST = day_of(1) * DAY, day_of(10_000) * DAY
_PARTS = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 24)}
_MONTHS = {"month": 1, "quarter": 3, "year": 12, "decade": 120}


@dataclass(slots=True)
class Weekday:
    """A weekday without a word that says which."""

    number: int
    part: str | None


Point = Yearly | Weekday | Fixed
"""What words mean so far: "May" waits for a year until the whole sentence is read."""


class Moment:
    """A moment, and the text that is read from it."""

    __slots__ = ("now", "tagged", "today")

    def __init__(self, tagged: Tagged, now: int) -> None:
        self.tagged = tagged
        self.now = min(max(now, FIRST), LAST - 1)
        self.today = self.now // DAY

    def resolve(self, point: Point, position: int) -> Fixed | None:
        """The stretch that is meant by words at a position of the text, if it exists."""
        if type(point) is tuple:
            return point
        future = self.tagged.speaks_of_future(position)
        if isinstance(point, Yearly):
            if point.year is not None:
                days = point.in_year(point.year)
            else:
                days = point.not_over(self.today) if future else point.begun(self.today)
            return fixed(days, point.precision) if days else None
        assert isinstance(point, Weekday)
        return in_day(self.which_weekday("N" if future else "l", point.number), point.part)

    def which_weekday(self, which: str, number: int) -> int:
        """The day of the last (`l`, `P`), next (`N`, `C`) or this week's (`t`) such weekday."""
        today = weekday(self.today)
        if which in "lP":
            return self.today - ((today - number) % 7 or 7)
        if which in "NC":
            return self.today + ((number - today) % 7 or 7)
        return self.today - today + number

    def which_yearly(self, which: str, thing: Yearly) -> Days | None:
        """The last, next or this year's such month, season or holiday."""
        if which in "lP":
            return thing.over(self.today)
        return thing.to_come(self.today) if which in "NC" else thing.current(self.today)

    def year_of(self, tags: str, items: Any) -> int | None:
        """The year among some words."""
        for place, tag in enumerate(tags):
            if tag == "y":
                return int(items[place][0])
            if tag == "Y":
                return civil(self.today)[0] + int(items[place][0])
        return None


def moved(unit: Any, low: int, high: int, base: int) -> Fixed:
    """So many units before or after a moment: the whole unit there, or all from the nearest to the farthest."""
    name, factor, _ = unit
    low, high = low * factor, high * factor
    if name in ("hour", "minute"):
        length = HOUR if name == "hour" else HOUR // 60
        first, last = sorted(((base + low * length) // HOUR, (base + high * length) // HOUR))
        return first * HOUR, (last + 1) * HOUR, "hour" if first == last else "range"
    near, far = period(name, base // DAY, low), period(name, base // DAY, high)
    precision: Precision = precision_of(name) if low == high else "range"
    return fixed((min(near[0], far[0]), max(near[1], far[1])), precision)


def stepped(day: int, unit: str, steps: int) -> int:
    """The same day so many units away; the last of the month where there is no such day."""
    if unit in ("day", "week"):
        return day + steps * (7 if unit == "week" else 1)
    months = steps * _MONTHS[unit]
    year, month, of_month = civil(day)
    return min(day_of(year, month + months, of_month), day_of(year, month + months + 1) - 1)


def fixed(days: Days, precision: Precision) -> Fixed:
    """Days as microseconds."""
    return days[0] * DAY, days[1] * DAY, precision


def in_day(day: int, part: str | None) -> Fixed:
    """A day, or its morning, afternoon, evening or night."""
    if part is None:
        return day * DAY, (day + 1) * DAY, "day"
    begins, ends = _PARTS[part]
    return day * DAY + begins * HOUR, day * DAY + ends * HOUR, "hour"


def precision_of(unit: str) -> Precision:
    """How exact a unit is."""
    return "range" if unit in ("quarter", "decade") else unit  # type: ignore[return-value]


def part_of(stretch: Fixed, which: int, of: int) -> Fixed:
    """Early, mid or late: a third, in a month the days 1 to 10, 11 to 20 and the rest; of a day the whole day."""
    start, end = stretch[0] // DAY, stretch[1] // DAY
    if end - start < 5:
        return stretch
    (year, month, day), (last_year, last_month, last_day) = civil(start), civil(end)
    months = 12 * (last_year - year) + last_month - month
    if day == last_day == 1 and months > 1 and months % of == 0:
        first = month + which * months // of
        return fixed((day_of(year, first), day_of(year, first + months // of)), "range")
    length = 10 if stretch[2] == "month" and of == 3 else (end - start) // of
    begins = start + which * length
    return fixed((begins, end if which == of - 1 else begins + length), "range")


def weekend_near(day: int, count: int) -> Days:
    """The weekend so many before or after a day, without the one the day is part of."""
    if count < 0:
        monday = day - weekday(day) + 7 * (count + 1)
        return monday - 2, monday
    saturday = day + ((SATURDAY - weekday(day)) % 7 or 7) + 7 * (count - 1)
    return saturday, saturday + 2
