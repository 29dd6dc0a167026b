"""What comes once a year: months, dates, seasons, quarters and holidays, in the year that is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tellback.memory.recall.dates.civil import Days, civil, day_of, easter, month_length, nth_weekday
from tellback.memory.recall.dates.values import Precision

# Leap days come back after eight years at the latest.
_REACH = 9

HOLIDAYS: Mapping[str, Callable[[int], int]] = {
    "christmas": lambda year: day_of(year, 12, 25),
    "christmas eve": lambda year: day_of(year, 12, 24),
    "boxing day": lambda year: day_of(year, 12, 26),
    "new year": lambda year: day_of(year, 1, 1),
    "new year's eve": lambda year: day_of(year, 12, 31),
    "halloween": lambda year: day_of(year, 10, 31),
    "valentine's day": lambda year: day_of(year, 2, 14),
    "thanksgiving": lambda year: nth_weekday(year, 11, 3, 4),
    "black friday": lambda year: nth_weekday(year, 11, 3, 4) + 1,
    "easter": easter,
    "easter monday": lambda year: easter(year) + 1,
    "good friday": lambda year: easter(year) - 2,
    "independence day": lambda year: day_of(year, 7, 4),
    "mother's day": lambda year: nth_weekday(year, 5, 6, 2),
    "father's day": lambda year: nth_weekday(year, 6, 6, 3),
    "labor day": lambda year: nth_weekday(year, 9, 0, 1),
    "memorial day": lambda year: nth_weekday(year, 5, 0, -1),
    "st patrick's day": lambda year: day_of(year, 3, 17),
}

Kind = Literal["month", "date", "dates", "season", "quarter", "holiday"]
_PRECISION: Mapping[Kind, Precision] = {
    "month": "month",
    "date": "day",
    "dates": "range",
    "season": "season",
    "quarter": "range",
    "holiday": "day",
}


@dataclass(slots=True)
class Yearly:
    """Something that comes every year; `year` when the words say which."""

    kind: Kind
    number: int = 0
    first: int = 0
    last: int = 0
    name: str = ""
    year: int | None = None

    @property
    def precision(self) -> Precision:
        return _PRECISION[self.kind]

    def possible(self) -> bool:
        """No year has a 30 February."""
        return self.kind not in ("date", "dates") or 1 <= self.first <= self.last <= month_length(2024, self.number)

    def in_year(self, year: int) -> Days | None:
        """Its days in a year, if that has it: a winter belongs to the year it begins in."""
        if self.kind == "month":
            return day_of(year, self.number), day_of(year, self.number + 1)
        if self.kind in ("date", "dates"):
            if self.last > 28 and self.last > month_length(year, self.number):
                return None
            return day_of(year, self.number, self.first), day_of(year, self.number, self.last) + 1
        if self.kind == "season":
            return day_of(year, 3 + 3 * self.number), day_of(year, 6 + 3 * self.number)
        if self.kind == "quarter":
            return day_of(year, 3 * self.number - 2), day_of(year, 3 * self.number + 1)
        day = HOLIDAYS[self.name](year)
        return day, day + 1

    def begun(self, today: int) -> Days | None:
        """The latest that has begun."""
        return self._down(civil(today)[0], lambda days: days[0] <= today)

    def over(self, today: int) -> Days | None:
        """The latest that is over."""
        return self._down(civil(today)[0], lambda days: days[1] <= today)

    def to_come(self, today: int) -> Days | None:
        """The earliest that has not begun."""
        return self._up(civil(today)[0] - 1, lambda days: days[0] > today)

    def not_over(self, today: int) -> Days | None:
        """The earliest that is not over."""
        return self._up(civil(today)[0] - 1, lambda days: days[1] > today)

    def current(self, today: int) -> Days | None:
        """The one of this year, or the one going on."""
        year = civil(today)[0]
        going_on = self.in_year(year - 1)
        return going_on if going_on and going_on[1] > today else self.in_year(year)

    def _down(self, year: int, fits: Callable[[Days], bool]) -> Days | None:
        return next((days for back in range(_REACH) if (days := self.in_year(year - back)) and fits(days)), None)

    def _up(self, year: int, fits: Callable[[Days], bool]) -> Days | None:
        return next((days for on in range(_REACH + 1) if (days := self.in_year(year + on)) and fits(days)), None)
