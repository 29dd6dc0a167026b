"""What comes once a year: months, dates, seasons, quarters and holidays, in the year that is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tellback.memory.recall.dates.civil import DayRange, civil_date, day_number, easter, month_length, nth_weekday
from tellback.memory.recall.dates.values import Precision

# Leap days come back after eight years at the latest.
_MAX_YEARS = 9

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

AnnualKind = Literal["month", "date", "dates", "season", "quarter", "holiday"]
_PRECISION_BY_KIND: Mapping[AnnualKind, Precision] = {
    "month": "month",
    "date": "day",
    "dates": "range",
    "season": "season",
    "quarter": "range",
    "holiday": "day",
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
