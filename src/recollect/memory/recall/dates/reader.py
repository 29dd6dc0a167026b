"""What the grammar's pieces mean, as seen from a moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.memory.recall.dates.civil import DAY, HOUR, SATURDAY, Days, civil, day_of, period, weekday
from recollect.memory.recall.dates.grammar import LEANING, POINTS, RANGES
from recollect.memory.recall.dates.languages import Language
from recollect.memory.recall.dates.lexer import Item, Lexer
from recollect.memory.recall.dates.values import Precision, Span
from recollect.memory.recall.dates.yearly import Yearly

Fixed = tuple[int, int, Precision]
"""Microseconds from and to, and how exact that is."""

FIRST, LAST = day_of(1) * DAY, day_of(10_000) * DAY
_FAR = 200 * 365 * DAY + 48 * DAY
_PARTS = {"morning": (6, 12), "afternoon": (12, 18), "evening": (18, 24), "night": (18, 24)}
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Weekday:
    """A weekday without a word that says which."""

    number: int
    part: str | None


Point = Yearly | Weekday | Fixed
Made = tuple[str, Point] | None


class Reader:
    """Reads the time expressions of one text."""

    __slots__ = ("items", "now", "sentences", "tags", "text", "today")

    def __init__(self, text: str, language: Language, now: int) -> None:
        self.text = text
        self.now = min(max(now, FIRST), LAST - 1)
        self.today = self.now // DAY
        self.tags, self.items, self.sentences = Lexer(text, language).read()

    def spans(self) -> list[Span]:
        """What was understood, in the order it stands in the text."""
        self._reduce(POINTS)
        if "A" not in self.tags and "J" not in self.tags:
            return []
        if len(self.tags) > 1:
            for _ in range(_ROUNDS):
                if not self._reduce(LEANING):
                    break
            self._reduce(RANGES)
        found = []
        for tag, (value, start, end) in zip(self.tags, self.items, strict=True):
            if tag in "AJ" and (fixed := self._resolve(value, start)):
                begins, ends = max(fixed[0], FIRST), min(fixed[1], LAST)
                if begins < ends:
                    found.append(Span(begins, ends, fixed[2], self.text[start:end]))
        return found

    def _reduce(self, pattern: re.Pattern[str]) -> bool:
        tags, items = self.tags, self.items
        found = pattern.search(tags)
        if found is None:
            return False
        pieces: list[str] = []
        kept: list[Item] = []
        done = 0
        while found:
            start, end = found.span()
            made: Made = getattr(self, f"_{found.lastgroup}")(tags[start:end], items[start:end])
            if made is None:
                found = pattern.search(tags, start + 1)
                continue
            pieces += (tags[done:start], made[0])
            kept += items[done:start]
            kept.append((made[1], items[start][1], items[end - 1][2]))
            done = end
            found = pattern.search(tags, end)
        self.tags = "".join((*pieces, tags[done:]))
        self.items = kept + items[done:]
        return bool(pieces)

    # What names a time by itself.

    def _days(self, tags: str, items: Sequence[Item]) -> Made:
        first, last = (_ordinal(tags, items, place) for place in _places(tags, "do"))
        month = _first(tags, items, "Mm")
        return self._yearly(Yearly("dates", month, min(first, last), max(first, last), year=self._year_in(tags, items)))

    def _date(self, tags: str, items: Sequence[Item]) -> Made:
        day = _ordinal(tags, items, _places(tags, "do")[0])
        return self._yearly(Yearly("date", _first(tags, items, "Mm"), day, day, year=self._year_in(tags, items)))

    def _month(self, tags: str, items: Sequence[Item]) -> Made:
        return self._yearly(Yearly("month", _first(tags, items, "Mm"), year=self._year_in(tags, items)))

    _bare_month = _month

    def _quarter(self, tags: str, items: Sequence[Item]) -> Made:
        if tags[0] == "o" and (items[1][0][0] != "quarter" or items[0][0] > 4):
            return None
        return self._yearly(Yearly("quarter", _first(tags, items, "Qo"), year=self._year_in(tags, items)))

    def _holiday(self, tags: str, items: Sequence[Item]) -> Made:
        return self._yearly(Yearly("holiday", name=items[0][0], year=self._year_in(tags, items)))

    def _season(self, tags: str, items: Sequence[Item]) -> Made:
        return self._yearly(Yearly("season", items[0][0], year=self._year_in(tags, items)))

    def _yearly(self, yearly: Yearly) -> Made:
        return ("A", yearly) if yearly.possible() else None

    def _year(self, tags: str, items: Sequence[Item]) -> Made:
        return "A", _fixed((day_of(items[0][0]), day_of(items[0][0] + 1)), "year")

    def _decade(self, tags: str, items: Sequence[Item]) -> Made:
        first = items[0][0]
        if first < 100:
            # The latest such decade that has begun.
            this = civil(self.today)[0]
            first = this - (this - first) % 100
        return "A", _fixed((day_of(first), day_of(first + 10)), "range")

    def _weekday(self, tags: str, items: Sequence[Item]) -> Made:
        monday = period("week", self.today, _first(tags, items, "K"))[0]
        return "A", _part(monday + _first(tags, items, "Ww"), _first(tags, items, "p"))

    def _bare_weekday(self, tags: str, items: Sequence[Item]) -> Made:
        return "J", Weekday(items[0][0], _first(tags, items, "p"))

    def _weekend(self, tags: str, items: Sequence[Item]) -> Made:
        if items[0][0][2]:
            return None
        future = self.sentences.speak_of_future(items[0][1])
        begun = future or weekday(self.today) >= SATURDAY
        return "A", _fixed(period("weekend", self.today, 0 if begun else -1), "weekend")

    def _period(self, tags: str, items: Sequence[Item]) -> Made:
        unit: Precision = "week" if tags == "K" else "year"
        return "A", _fixed(period(unit, self.today, items[0][0]), unit)

    def _vague(self, tags: str, items: Sequence[Item]) -> Made:
        return "A", ((self.today - items[0][0]) * DAY, self.now + 1, "range")

    def _daypart(self, tags: str, items: Sequence[Item]) -> Made:
        if tags[0] == "D":
            offset, part = items[0][0]
            return "A", _part(self.today + offset, _first(tags, items, "p") or part)
        return "A", _part(self.today - (tags[0] == "l"), items[1][0])

    def _ago(self, tags: str, items: Sequence[Item]) -> Made:
        sign = 1 if tags[0] == "i" or tags[-1] == "f" else -1
        low, high = _count(tags, items)
        return "A", self._moved(_first(tags, items, "uk"), sign * low, sign * high, self.now)

    def _rolling(self, tags: str, items: Sequence[Item]) -> Made:
        """The past three weeks: so many, up to today or from tomorrow on."""
        unit, factor, _ = items[-1][0]
        high = _count(tags, items)[1] * factor
        if unit in ("hour", "minute"):
            length = high * (HOUR if unit == "hour" else HOUR // 60)
            fixed = (self.now, self.now + length) if tags[0] in "NC" else (self.now - length, self.now + 1)
            return "A", (*fixed, "range")
        if unit == "weekend":
            ahead = tags[0] in "NC"
            ends = (0 if ahead else -high), (high if ahead else 0)
            return "A", _fixed((period(unit, self.today, ends[0])[0], period(unit, self.today, ends[1])[1]), "range")
        if tags[0] in "NC":
            return "A", _fixed((self.today + 1, _stepped(self.today + 1, unit, high)), "range")
        return "A", _fixed((_stepped(self.today, unit, -high), self.today + 1), "range")

    def _relative(self, tags: str, items: Sequence[Item]) -> Made:
        part = _first(tags, items, "p")
        if tags[-1] == "r":
            which, place = items[-1][0], 0
        else:
            place = len(tags) - 1 - (part is not None)
            which = tags[place - 1]
        tag, value = tags[place], items[place][0]
        if tag in "uk":
            return self._relative_unit(which, value)
        if tag in "Ww":
            days = self._which_weekday(which, value)
            return "A", _part(days[0], part)
        if part is not None:
            return None
        yearly = {"M": "month", "m": "month", "S": "season", "V": "season", "Q": "quarter"}.get(tag)
        thing = Yearly("holiday", name=value) if tag == "H" else Yearly(yearly, value)  # type: ignore[arg-type]
        found = self._which_yearly(which, thing)
        return ("A", _fixed(found, thing.precision)) if found else None

    def _relative_unit(self, which: str, value: Any) -> Made:
        unit, factor, plural = value
        if plural or unit == "minute" or (unit in ("day", "hour") and which not in "P"):
            return None
        if which == "P" and unit != "weekend":
            if unit == "hour":
                return "A", (self.now - HOUR, self.now + 1, "range")
            return "A", _fixed((_stepped(self.today, unit, -factor), self.today + 1), "range")
        offset = {"l": -1, "P": -1, "t": 0, "N": 1, "C": 1}[which] * factor
        if unit == "weekend" and which == "C" and weekday(self.today) < SATURDAY:
            offset = 0
        return "A", _fixed(period(unit, self.today, offset), _precision(unit))

    def _which_weekday(self, which: str, number: int) -> Days:
        if which in "lP":
            day = self.today - ((self.today + 3 - number) % 7 or 7)
        elif which in "NC":
            day = self.today + ((number - self.today - 3) % 7 or 7)
        else:
            day = self.today - weekday(self.today) + number
        return day, day + 1

    def _which_yearly(self, which: str, thing: Yearly) -> Days | None:
        if which in "lP":
            return thing.over(self.today)
        return thing.to_come(self.today) if which in "NC" else thing.current(self.today)

    def _second(self, tags: str, items: Sequence[Item]) -> Made:
        """The week before last, the May after next."""
        sign = -1 if tags[1] == "b" else 1
        tag, value = tags[0], items[0][0]
        if tag == "p":
            return "A", _part(self.today + 2 * sign, value)
        if tag in "uk":
            return "A", self._moved(value, 2 * sign, 2 * sign, self.now)
        if tag in "Ww":
            day = self._which_weekday(tags[2], value)[0] + 7 * sign
            return "A", _part(day, None)
        made = self._relative(tags[2] + tag, (items[2], items[0]))
        if made is None:
            return None
        earlier = Reader._moved(self, ("year", 1, False), sign, sign, made[1][0])  # type: ignore[index]
        year = civil(earlier[0] // DAY)[0]
        kind = {"M": "month", "m": "month", "S": "season", "V": "season"}.get(tag, "holiday")
        name = value if kind == "holiday" else ""
        return "A", Yearly(kind, 0 if name else value, name=name, year=year)  # type: ignore[arg-type]

    # What leans on another piece.

    def _nth(self, tags: str, items: Sequence[Item]) -> Made:
        """The first Monday of June, the last weekend of August."""
        fixed = self._resolve(items[-1][0], items[-1][1])
        if fixed is None or fixed[1] - fixed[0] < 7 * DAY:
            return None
        start, end = fixed[0] // DAY, fixed[1] // DAY
        nth = items[0][0] if tags[0] == "o" else -1
        if tags[1] == "J":
            step, length, first = 7, 1, start + (items[1][0].number - weekday(start)) % 7
        else:
            unit, _, _ = items[1][0]
            if unit == "day":
                step, length, first = 1, 1, start
            elif unit == "week":
                step, length, first = 7, 7, start
            elif unit == "weekend":
                step, length, first = 7, 2, start + (SATURDAY - weekday(start)) % 7
            elif unit == "month" and nth > 0:
                year, month, _ = civil(start)
                days = day_of(year, month + nth - 1), day_of(year, month + nth)
                return ("A", _fixed(days, "month")) if days[1] <= end else None
            else:
                return None
        begins = first + (nth - 1) * step if nth > 0 else first + (end - length - first) // step * step
        if not start <= begins < end:
            return None
        return "A", _fixed((begins, begins + length), {1: "day", 2: "weekend"}.get(length, "week"))  # type: ignore[arg-type]

    def _part(self, tags: str, items: Sequence[Item]) -> Made:
        """Early, mid, late: thirds, in a month the days 1–10, 11–20 and the rest."""
        which, of = items[0][0]
        if tags[-1] == "A":
            fixed = self._resolve(items[-1][0], items[-1][1])
        else:
            unit, _, plural = items[-1][0]
            if plural or unit in ("day", "hour", "minute"):
                return None
            fixed = _fixed(period(unit, self.today, 0), _precision(unit))
        if fixed is None:
            return None
        start, end = fixed[0] // DAY, fixed[1] // DAY
        if end - start < 5:
            # "Late yesterday" is yesterday.
            return "A", fixed
        length = 10 if fixed[2] == "month" and of == 3 else (end - start) // of
        begins = start + which * length
        return "A", _fixed((begins, end if which == of - 1 else begins + length), "range")

    def _shifted(self, tags: str, items: Sequence[Item]) -> Made:
        """Two days before, the weekend after, the Friday before something."""
        fixed = self._resolve(items[-1][0], items[-1][1])
        if fixed is None:
            return None
        sign = -1 if "b" in tags or "v" in tags else 1
        edge = fixed[0] if sign < 0 else fixed[1] - 1
        if tags[0] == "J":
            near: Weekday = items[0][0]
            day = edge // DAY
            gap = (day + 3 - near.number) % 7 or 7 if sign < 0 else (near.number - day - 3) % 7 or 7
            return "A", _part(day + sign * gap, near.part)
        if tags[0] == "p":
            return "A", _part(edge // DAY + sign, items[0][0])
        unit = _first(tags, items, "uk")
        if tags[0] in "uk":
            low, high = (0, 0) if unit[2] else (1, 1)
        else:
            low, high = _count(tags, items)
        return ("A", self._moved(unit, sign * low, sign * high, edge)) if high else None

    def _within(self, tags: str, items: Sequence[Item]) -> Made:
        """The week of 8 May, the night of the 3rd of June, the month of May."""
        fixed = self._resolve(items[-1][0], items[-1][1])
        if fixed is None:
            return None
        day = fixed[0] // DAY
        if tags[0] == "p":
            return ("A", _part(day, items[0][0])) if fixed[2] == "day" else None
        unit, _, plural = items[0][0]
        if plural or unit in ("hour", "minute"):
            return None
        found = _fixed(period(unit, day, 0), _precision(unit))
        # "The day of last week" says no more than "last week".
        return "A", found if found[1] - found[0] >= fixed[1] - fixed[0] or unit == "weekend" else fixed

    def _clipped(self, tags: str, items: Sequence[Item]) -> Made:
        """Earlier this week, later this year."""
        fixed = self._resolve(items[1][0], items[1][1])
        if fixed is None or not items[0][0] and tags[0] == "G" or not fixed[0] <= self.now < fixed[1]:
            return None
        if fixed[2] == "day":
            return "A", fixed
        clipped = (fixed[0], self.now + 1) if tags[0] == "G" else (self.now, fixed[1])
        return "A", (*clipped, "range")

    # What spans two, or is open.

    def _between(self, tags: str, items: Sequence[Item]) -> Made:
        places = _places(tags, "AJ")
        (first, start, _), (last, end, _) = items[places[0]], items[places[1]]
        if isinstance(last, Yearly) and last.year is None and (opened := _known_start(first)) is not None:
            days = last.not_over(opened)
            until = _fixed(days, last.precision) if days else None
        elif isinstance(last, Weekday) and not isinstance(first, Weekday) and (fixed := self._resolve(first, start)):
            day = fixed[1] // DAY - 1
            until = _part(day + ((last.number - day - 3) % 7 or 7), last.part)
        else:
            until = self._resolve(last, end)
        if until is None:
            return None
        since: Fixed | None
        if isinstance(first, Yearly) and first.year is None:
            days = first.begun(until[0] // DAY)
            since = _fixed(days, first.precision) if days else None
        elif isinstance(first, Weekday):
            day = until[0] // DAY
            since = _part(day - (day + 3 - first.number) % 7, first.part)
        else:
            since = self._resolve(first, start)
        if since is None or since[0] >= until[1] or since == until:
            return None
        return "A", (since[0], until[1], "range")

    def _open(self, tags: str, items: Sequence[Item]) -> Made:
        """Since and after run to now, or on for long if that is past; before and until come from long ago, or now."""
        value, start, _ = items[-1]
        if tags[0] == "T" and isinstance(value, Weekday):
            fixed: Fixed | None = _part(self._which_weekday("N", value.number)[0], value.part)
        else:
            fixed = self._resolve(value, start)
        if fixed is None:
            return None
        begins, ends, _ = fixed
        if tags[0] == "s":
            return ("A", (begins, self.now + 1, "range")) if begins <= self.now else None
        if tags[0] == "e":
            runs = ends > self.now or self.sentences.speak_of_future(start)
            return "A", (ends, max(ends, self.now) + _FAR if runs else self.now + 1, "range")
        if tags[0] == "T":
            return "A", (self.now if begins > self.now else min(begins, self.now) - _FAR, ends, "range")
        return "A", (min(begins, self.now) - _FAR, begins, "range")

    # Helpers.

    def _resolve(self, point: Point, position: int) -> Fixed | None:
        if isinstance(point, tuple):
            return point
        if isinstance(point, Weekday):
            which = "N" if self.sentences.speak_of_future(position) else "l"
            return _part(self._which_weekday(which, point.number)[0], point.part)
        if point.year is not None:
            days = point.in_year(point.year)
        elif self.sentences.speak_of_future(position):
            days = point.not_over(self.today)
        else:
            days = point.begun(self.today)
        return _fixed(days, point.precision) if days else None

    def _moved(self, unit: Any, low: int, high: int, base: int) -> Fixed:
        """So many units before or after a moment: the whole unit there, or from the nearest to the farthest."""
        name, factor, _ = unit
        low, high = low * factor, high * factor
        if name in ("hour", "minute"):
            length = HOUR if name == "hour" else HOUR // 60
            first, last = sorted(((base + low * length) // HOUR, (base + high * length) // HOUR))
            return first * HOUR, (last + 1) * HOUR, "hour" if first == last else "range"
        day = base // DAY
        if name == "weekend" and base != self.now:
            # The weekend before a Sunday ended the Sunday before; the one after a Friday starts the next day.
            day += 1 if low > 0 and weekday(day) < SATURDAY else 0
            low, high = (low - 1, high - 1) if low > 0 and weekday(day) <= SATURDAY else (low, high)
        near, far = period(name, day, low), period(name, day, high)
        precision = _precision(name) if low == high else "range"
        return _fixed((min(near[0], far[0]), max(near[1], far[1])), precision)

    def _year_in(self, tags: str, items: Sequence[Item]) -> int | None:
        for tag, item in zip(tags, items, strict=True):
            if tag == "y":
                return int(item[0])
            if tag == "Y":
                return civil(self.today)[0] + int(item[0])
        return None


def _fixed(days: Days, precision: Precision) -> Fixed:
    return days[0] * DAY, days[1] * DAY, precision


def _part(day: int, part: str | None) -> Fixed:
    """A day, or its morning, afternoon, evening or night."""
    if part is None:
        return day * DAY, (day + 1) * DAY, "day"
    begins, ends = _PARTS[part]
    return day * DAY + begins * HOUR, day * DAY + ends * HOUR, "hour"


def _precision(unit: str) -> Precision:
    return "range" if unit in ("quarter", "decade") else unit  # type: ignore[return-value]


def _stepped(day: int, unit: str, steps: int) -> int:
    """The same day so many units away."""
    if unit in ("day", "week"):
        return day + steps * (7 if unit == "week" else 1)
    months = steps * {"month": 1, "quarter": 3, "year": 12, "decade": 120}[unit]
    year, month, of_month = civil(day)
    return min(day_of(year, month + months, of_month), day_of(year, month + months + 1) - 1)


def _known_start(point: Point) -> int | None:
    if isinstance(point, tuple):
        return point[0] // DAY
    if isinstance(point, Yearly) and point.year is not None and (days := point.in_year(point.year)):
        return days[0]
    return None


def _places(tags: str, which: str) -> list[int]:
    return [place for place, tag in enumerate(tags) if tag in which]


def _first(tags: str, items: Sequence[Item], which: str) -> Any:
    return next((item[0] for tag, item in zip(tags, items, strict=True) if tag in which), None)


def _ordinal(tags: str, items: Sequence[Item], place: int) -> int:
    """A day of a month; "twenty-third" is two words."""
    tens = items[place - 2][0][0] if place >= 2 and tags[place - 2 : place] == "n-" else 0
    return int(items[place][0]) + tens


def _count(tags: str, items: Sequence[Item]) -> tuple[int, int]:
    low = high = 0
    for tag, item in zip(tags, items, strict=True):
        if tag in "an":
            low, high = low + item[0][0], high + item[0][1]
        elif tag in "dcy":
            low, high = low + item[0], high + item[0]
    return low, high
