"""The later rounds: what leans on a time ("the Friday before …", "the end of …"), then ranges ("since …")."""

from __future__ import annotations

from collections.abc import Sequence

from tellback.memory.recall.dates.civil import DAY, SATURDAY, civil, day_of, period, weekday
from tellback.memory.recall.dates.lexer import Item
from tellback.memory.recall.dates.moment import (
    Fixed,
    Moment,
    Point,
    Weekday,
    fixed,
    in_day,
    moved,
    part_of,
    precision_of,
    weekend_near,
)
from tellback.memory.recall.dates.rules import COUNT, Made, Rules, count_of, places_of, value_of
from tellback.memory.recall.dates.values import Precision
from tellback.memory.recall.dates.yearly import Yearly

_FAR = (200 * 365 + 48) * DAY


def _nth(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """The first Monday of June, the last weekend of August, the second month of 2023."""
    whole = moment.resolve(items[-1][0], items[-1][1])
    if whole is None or whole[1] - whole[0] < 7 * DAY:
        return None
    start, end = whole[0] // DAY, whole[1] // DAY
    if tags[0] == "K":
        nth, unit = items[0][0], "week"
    else:
        nth = items[0][0] if tags[0] == "o" else -1
        unit = "weekday" if tags[1] == "J" else items[1][0][0]
    if nth == 0:
        return None
    if unit == "month" and nth > 0:
        year, month, _ = civil(start)
        days = day_of(year, month + nth - 1), day_of(year, month + nth)
        return ("A", fixed(days, "month")) if days[1] <= end else None
    if unit not in _STEPS:
        return None
    step, length, precision = _STEPS[unit]
    first = start
    if unit in ("weekday", "weekend"):
        first += ((items[1][0].number if unit == "weekday" else SATURDAY) - weekday(start)) % 7
    if nth > 0:
        begins = first + (nth - 1) * step
    else:
        begins = end - length - (0 if unit == "week" else (end - length - first) % step)
    return ("A", fixed((begins, begins + length), precision)) if start <= begins < end else None


_STEPS: dict[str, tuple[int, int, Precision]] = {
    "day": (1, 1, "day"),
    "weekday": (7, 1, "day"),
    "weekend": (7, 2, "weekend"),
    "week": (7, 7, "week"),
}


def _part(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Early May, the end of last year."""
    point, position, _ = items[-1]
    whole = moment.resolve(point, position)
    if whole is None:
        return None
    found = part_of(whole, *items[0][0])
    if isinstance(point, Yearly) and point.year is None:
        # In early May, late May is still the one of last year.
        future = moment.tagged.speaks_of_future(position)
        off = (found[1] <= moment.now) if future else -(found[0] > moment.now)
        if off and (days := point.in_year(civil(whole[0] // DAY)[0] + off)):
            found = part_of(fixed(days, point.precision), *items[0][0])
    return "A", found


def _shifted(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Two days before, the weekend after, the Friday before something."""
    point, position, _ = items[-1]
    if "F" in tags and isinstance(point, Weekday):
        base: Fixed | None = in_day(moment.which_weekday("N", point.number), None)
    else:
        base = moment.resolve(point, position)
    if base is None:
        return None
    sign = -1 if "b" in tags or "v" in tags else 1
    edge = base[0] if sign < 0 else base[1] - 1
    day = edge // DAY
    value = items[0][0]
    if tags[0] == "J":
        apart = sign * (value.number - weekday(day)) % 7 or 7
        return "A", in_day(day + sign * apart, value.part)
    if tags[0] == "p":
        return "A", in_day(day + sign, value)
    unit = value_of(tags, items, "uk")
    if tags[0] in "uk":
        # "The years before" is not one year.
        if unit[2]:
            return None
        low, high = 1, 1
    else:
        low, high = count_of(tags, items)
    if unit[0] == "weekend":
        ends = weekend_near(day, sign * low) + weekend_near(day, sign * high)
        return "A", fixed((min(ends), max(ends)), "weekend" if low == high else "range")
    return "A", moved(unit, sign * low, sign * high, edge)


def _within(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """The week of 8 May, the night of the 3rd of June, the month of May."""
    base = moment.resolve(items[-1][0], items[-1][1])
    if base is None:
        return None
    day = base[0] // DAY
    if tags[0] == "p":
        return ("A", in_day(day, items[0][0])) if base[2] == "day" else None
    unit, _, plural = items[0][0]
    if plural or unit in ("hour", "minute"):
        return None
    found = fixed(period(unit, day, 0), precision_of(unit))
    # "The day of last week's party" says no more than "last week".
    return "A", found if unit == "weekend" or found[1] - found[0] >= base[1] - base[0] else base


def _clipped(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Earlier this week, later this year."""
    whole = moment.resolve(items[1][0], items[1][1])
    if whole is None or (tags[0] == "G" and not items[0][0]) or not whole[0] <= moment.now < whole[1]:
        return None
    if whole[2] == "day":
        return "A", whole
    begins, ends = (whole[0], moment.now + 1) if tags[0] == "G" else (moment.now, whole[1])
    return "A", (begins, ends, "range")


def _between(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Between May and July 2023, from Monday to Friday: an end without a year takes it from the other."""
    places = places_of(tags, "AJ")
    (first, begins_at, _), (last, ends_at, _) = items[places[0]], items[places[1]]
    until = _end(moment, first, begins_at, last, ends_at)
    if until is None:
        return None
    day = until[0] // DAY
    since: Fixed | None
    if isinstance(first, Yearly) and first.year is None:
        days = first.begun(day)
        since = fixed(days, first.precision) if days else None
    elif isinstance(first, Weekday):
        since = in_day(day - (weekday(day) - first.number) % 7, first.part)
    else:
        since = moment.resolve(first, begins_at)
    if since is None or since[0] >= until[1] or since == until:
        return None
    return "A", (since[0], until[1], "range")


def _end(moment: Moment, first: Point, begins_at: int, last: Point, ends_at: int) -> Fixed | None:
    dated = isinstance(first, tuple) or (isinstance(first, Yearly) and first.year is not None)
    opens = moment.resolve(first, begins_at) if dated else None
    if opens is not None and isinstance(last, Yearly) and last.year is None:
        days = last.not_over(opens[0] // DAY)
        return fixed(days, last.precision) if days else None
    if opens is not None and isinstance(last, Weekday):
        day = opens[1] // DAY - 1
        return in_day(day + ((last.number - weekday(day)) % 7 or 7), last.part)
    return moment.resolve(last, ends_at)


def _open(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Since and after run to now, or on for long where that is past; before and until come from long ago, or now."""
    point, position, _ = items[-1]
    if tags[0] == "T" and isinstance(point, Weekday):
        limit: Fixed | None = in_day(moment.which_weekday("N", point.number), point.part)
    else:
        limit = moment.resolve(point, position)
    if limit is None:
        return None
    begins, ends, _ = limit
    now = moment.now
    if tags[0] == "s":
        return ("A", (begins, now + 1, "range")) if begins <= now else None
    if tags[0] == "e":
        on = ends > now or moment.tagged.speaks_of_future(position)
        return "A", (ends, max(ends, now) + _FAR if on else now + 1, "range")
    if tags[0] == "T":
        return "A", (now if begins > now else begins - _FAR, ends, "range")
    return "A", (min(begins, now) - _FAR, begins, "range")


LEANING = Rules(
    "olKEandcyukpJGg",
    (
        (r"[ol][ukJ][Oi]h?A|KOh?A", _nth),
        (r"E-?[Oi]?h?A", _part),
        # "Two days before the Friday before …" starts with the Friday.
        (rf"(?:(?:{COUNT}[uk]|[ukpJ])[bev]|{COUNT}[uk]F)h?(?:A|J(?![bev]h?[AJ]))", _shifted),
        (r"[ukp]Oh?[AJ]", _within),
        (r"[Gg]A", _clipped),
    ),
)

RANGES = Rules(
    "BFhAJsbevT",
    (
        (r"Bh?[AJ]&h?[AJ]|(?:Fh?)?[AJ][2T-]h?[AJ]", _between),
        (r"[sbevT]h?[AJ]", _open),
    ),
)
