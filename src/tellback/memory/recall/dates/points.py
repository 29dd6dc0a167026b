"""The first round: words that name a time by themselves, such as "8 May", "last week" or "two days ago"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tellback.memory.recall.dates.civil import DAY, HOUR, SATURDAY, civil, day_of, month_length, period, weekday
from tellback.memory.recall.dates.lexer import Item
from tellback.memory.recall.dates.moment import (
    Moment,
    Weekday,
    fixed,
    in_day,
    moved,
    part_of,
    precision_of,
    stepped,
)
from tellback.memory.recall.dates.rules import (
    COUNT,
    DAY_OF_MONTH,
    YEAR,
    Made,
    Rules,
    count_of,
    places_of,
    value_of,
)
from tellback.memory.recall.dates.values import Precision
from tellback.memory.recall.dates.yearly import Kind, Yearly

_KINDS: dict[str, Kind] = {"M": "month", "m": "month", "S": "season", "V": "season", "Q": "quarter", "H": "holiday"}
_OFFSETS = {"l": -1, "P": -1, "t": 0, "N": 1, "C": 1}
_MANY = (2, 10)
_AHEAD = 10


def _days(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """From 3 to 9 May."""
    first, last = sorted(_day(tags, items, place) for place in places_of(tags, "do"))
    return _possible(Yearly("dates", value_of(tags, items, "Mm"), first, last, "", moment.year_of(tags, items)))


def _date(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """8 May 2023, Friday, May 8th."""
    day = _day(tags, items, places_of(tags, "do")[0])
    return _possible(Yearly("date", value_of(tags, items, "Mm"), day, day, "", moment.year_of(tags, items)))


def _day(tags: str, items: Sequence[Item], place: int) -> int:
    tens = items[place - 2][0][0] if place >= 2 and tags[place - 2 : place] == "n-" else 0
    return int(items[place][0]) + tens


def _month(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    return "A", Yearly("month", value_of(tags, items, "Mm"), year=moment.year_of(tags, items))


def _quarter(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Q3 2024, the first quarter of 2024."""
    if tags[0] == "o" and (items[1][0][0] != "quarter" or items[0][0] > 4):
        return None
    return "A", Yearly("quarter", value_of(tags, items, "Qo"), year=moment.year_of(tags, items))


def _holiday(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    return "A", Yearly("holiday", name=items[0][0], year=moment.year_of(tags, items))


def _season(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    return "A", Yearly("season", items[0][0], year=moment.year_of(tags, items))


def _possible(yearly: Yearly) -> Made:
    return ("A", yearly) if yearly.possible() else None


def _year(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    return "A", fixed((day_of(items[0][0]), day_of(items[0][0] + 1)), "year")


def _lone_year(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """2023 without a word that makes it a year: not one far ahead, which is rather a title or a count."""
    return _year(moment, tags, items) if items[0][0] <= civil(moment.today)[0] + _AHEAD else None


def _decade(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """The 1990s; the 90s, which are the latest that have begun."""
    first = items[0][0]
    if first < 100:
        this = civil(moment.today)[0]
        first = this - (this - first) % 100
    return "A", fixed((day_of(first), day_of(first + 10)), "range")


def _weekday_of_week(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Friday last week."""
    monday = period("week", moment.today, value_of(tags, items, "K"))[0]
    return "A", in_day(monday + value_of(tags, items, "Ww"), value_of(tags, items, "p"))


def _weekday(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    return "J", Weekday(items[0][0], value_of(tags, items, "p"))


def _weekend(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Over the weekend: the latest that has begun."""
    if items[0][0][2]:
        return None
    this = weekday(moment.today) >= SATURDAY or moment.tagged.speaks_of_future(items[0][1])
    return "A", fixed(period("weekend", moment.today, 0 if this else -1), "weekend")


def _period(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Last week, this year."""
    unit: Precision = "week" if tags == "K" else "year"
    return "A", fixed(period(unit, moment.today, items[0][0]), unit)


def _vague(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Recently."""
    return "A", ((moment.today - items[0][0]) * DAY, moment.now + 1, "range")


def _day_word(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Today, yesterday evening, this morning, last night."""
    if tags[0] == "D":
        offset, part = items[0][0]
        return "A", in_day(moment.today + offset, value_of(tags, items, "p") or part)
    return "A", in_day(moment.today - (tags[0] == "l"), items[1][0])


def _ago(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Two days ago, in a week, a month from now, years ago."""
    sign = 1 if tags[0] == "i" or tags[-1] == "f" else -1
    unit = value_of(tags, items, "uk")
    if tags[0] == "i" and moment.tagged.told_as_past(items[0][1]):
        return None
    if tags[0] == "u":
        # "Years ago" and "a fortnight ago", but not "the day ago" or "two lines and years earlier".
        if items[-1][0] or not (unit[2] or unit[1] > 1):
            return None
        low, high = _MANY if unit[2] else (1, 1)
    else:
        low, high = count_of(tags, items)
        if "/" in tags and unit[0] == "year":
            unit, low, high = ("month", 1, True), 12 * low + 6, 12 * high + 6
    return "A", moved(unit, sign * low, sign * high, moment.now)


def _weekdays_ago(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Two Fridays ago."""
    low, high = count_of(tags, items)
    latest = moment.which_weekday("l", value_of(tags, items, "7"))
    return "A", fixed((latest - 7 * (high - 1), latest - 7 * (low - 1) + 1), "day" if low == high else "range")


def _rolling(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """The past three weeks, the next two days: up to today, or from tomorrow on."""
    unit, factor, _ = items[-1][0]
    many = count_of(tags, items)[1] * factor
    ahead = tags[0] in "NC"
    if unit in ("hour", "minute"):
        length = many * (HOUR if unit == "hour" else HOUR // 60)
        begins, ends = (moment.now, moment.now + length) if ahead else (moment.now - length, moment.now)
        return "A", (begins, ends + 1, "range")
    if unit == "weekend":
        begun = weekday(moment.today) >= SATURDAY
        first = int(begun) if ahead else begun - many
        days = period(unit, moment.today, first)[0], period(unit, moment.today, first + many - 1)[1]
    elif ahead:
        days = moment.today + 1, stepped(moment.today + 1, unit, many)
    else:
        days = stepped(moment.today, unit, -many), moment.today + 1
    return "A", fixed(days, "range")


def _relative(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """Last Friday night, this summer, next month, next Christmas."""
    part = value_of(tags, items, "p")
    if tags[-1] == "r":
        which, place = items[-1][0], 0
    else:
        place = len(tags) - 1 - (part is not None)
        which = tags[place - 1]
    tag, value = tags[place], items[place][0]
    if tag in "Ww":
        return "A", in_day(moment.which_weekday(which, value), part)
    if part is not None:
        return None
    if tag in "uk":
        return _relative_unit(moment, which, value)
    thing = _named(tag, value)
    days = moment.which_yearly(which, thing)
    return ("A", fixed(days, thing.precision)) if days else None


def _named(tag: str, value: Any, year: int | None = None) -> Yearly:
    return Yearly("holiday", name=value, year=year) if tag == "H" else Yearly(_KINDS[tag], value, year=year)


def _relative_unit(moment: Moment, which: str, value: Any) -> Made:
    unit, factor, plural = value
    # "The next day" and "the last minute" are told from within a story.
    if plural or unit == "minute" or (unit in ("day", "hour") and which != "P"):
        return None
    if which == "P" and unit != "weekend":
        if unit == "hour":
            return "A", (moment.now - HOUR, moment.now + 1, "range")
        return "A", fixed((stepped(moment.today, unit, -factor), moment.today + 1), "range")
    offset = _OFFSETS[which] * factor
    if unit == "weekend" and which == "C" and weekday(moment.today) < SATURDAY:
        offset = 0
    return "A", fixed(period(unit, moment.today, offset), precision_of(unit))


def _but_one(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """The week before last, the May after next."""
    sign = -1 if tags[1] == "b" else 1
    tag, value = tags[0], items[0][0]
    if tag == "p":
        return "A", in_day(moment.today + 2 * sign, value)
    if tag in "uk":
        return "A", moved(value, 2 * sign, 2 * sign, moment.now)
    if tag in "Ww":
        return "A", in_day(moment.which_weekday(tags[2], value) + 7 * sign, None)
    days = moment.which_yearly(tags[2], _named(tag, value))
    return ("A", _named(tag, value, civil(days[0])[0] + sign)) if days else None


def _part_of_this(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """The end of the month."""
    unit, _, plural = items[-1][0]
    if plural or unit in ("day", "hour", "minute"):
        return None
    return "A", part_of(fixed(period(unit, moment.today, 0), precision_of(unit)), *items[0][0])


def _day_of_month(moment: Moment, tags: str, items: Sequence[Item]) -> Made:
    """On the 15th: the latest that has begun, or the next in a sentence of the future."""
    number, start, end = items[0]
    if end - start > len("15th"):
        return None
    year, month, today = civil(moment.today)
    step = 1 if moment.tagged.speaks_of_future(start) else -1
    if (number - today) * step < 0:
        month += step
    while number > month_length(year, month):
        month += step
    return "A", in_day(day_of(year, month, number), None)


_D, _UNIT = DAY_OF_MONTH, "[uk]"
# What is said to come every year or week is no moment, and "last week of …" waits for what follows.
_ONCE, _WHOLE = r"(?<!\*)", r"(?!O[^x])"

POINTS = Rules(
    "FBdonWwMmyYKlPNCtukSVHpaviDQZLE",
    (
        (
            rf"(?:F?{_D}[2T-]{_D}|B{_D}&{_D})O?h?[Mm]{YEAR}?"
            rf"|(?:F?[Mm]h?{_D}[2T-]h?{_D}|B[Mm]h?{_D}&h?{_D})(?!O?[Mm]){YEAR}?",
            _days,
        ),
        (rf"(?:[Ww],?h?)?(?:{_D}(?:O?M|Om|m(?=[,.yY]|$))|[Mm]h?{_D}(?!{_UNIT})){YEAR}?", _date),
        (rf"M{YEAR}|m,?O?[yY]|m\([yY]\)|[yY],?i?h?M|Yim", _month),
        (r"[Ww]p?,?O?h?K|K,?q?[Ww]p?", _weekday_of_week),
        (rf"[lPNC](?:a?n(?:-?n)?|[dcy]){_UNIT}", _rolling),
        (rf"(?:t?[lPNC](?:[ukHQSVWw]|[Mm](?![do]))|t[ukHQSVWwM]){_WHOLE}p?|[ukWwMmSVH]r", _relative),
        (r"[ukWwMmSVHp](?:bl|eN)(?![uk])", _but_one),
        (rf"{COUNT}{_UNIT}/?[Gf]|v{COUNT}{_UNIT}|(?<!z)i{COUNT}{_UNIT}(?![be])|(?<!#)uG", _ago),
        (rf"{COUNT}7G", _weekdays_ago),
        (r"Dp?|tp|lp", _day_word),
        (rf"Q{YEAR}?|yQ|ou{YEAR}?", _quarter),
        (rf"H{YEAR}|{_ONCE}H", _holiday),
        (
            rf"[SV]{YEAR}|(?<=[ij])[SV]|(?<=[ij]h)[SV]|(?<=qh)S|(?<=[sbeTE])S|(?<=[sbeT]h)S|(?<=E-)S|(?<=E)V",
            _season,
        ),
        (r"(?<=[jq]h)k|(?<=[jq])k", _weekend),
        (r"Z", _decade),
        (r"L", _vague),
        (r"K(?!O[^x])|Y", _period),
        (rf"E-?O?h{_UNIT}", _part_of_this),
        (rf"{_ONCE}M|(?<=[isTFBEO])m|(?<=E-)m|(?<=[FB][Mm][2&T-])m", _month),
        (rf"{_ONCE}Wp?|(?<=q)wp?", _weekday),
        (r"(?<=[iOsjTFBbehE])y|(?<=E-)y|(?<=[FB]y[2&T-])y|(?<=y-)y|y(?=-y)", _year),
        (r"(?<!#)y(?![xndcuko#zG]|-[dcno])", _lone_year),
        (r"(?<=qh)o(?![xukWwO])", _day_of_month),
    ),
)
