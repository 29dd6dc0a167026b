"""The first round: words that name a time by themselves, such as "8 May", "last week" or "two days ago"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tellback.memory.recall.dates.civil import (
    DAY,
    HOUR,
    SATURDAY,
    civil_date,
    day_number,
    month_length,
    period,
    weekday,
)
from tellback.memory.recall.dates.lexer import TaggedItem
from tellback.memory.recall.dates.moment import (
    BareWeekday,
    ReferenceTime,
    add_units,
    shift_by_units,
    span_in_day,
    span_part,
    to_span,
    unit_precision,
)
from tellback.memory.recall.dates.rules import (
    COUNT,
    DAY_OF_MONTH,
    YEAR,
    RuleResult,
    RuleSet,
    find_tags,
    find_value,
    parse_count,
)
from tellback.memory.recall.dates.values import Precision
from tellback.memory.recall.dates.yearly import AnnualKind, AnnualPeriod

_KIND_BY_TAG: dict[str, AnnualKind] = {
    "M": "month",
    "m": "month",
    "S": "season",
    "V": "season",
    "Q": "quarter",
    "H": "holiday",
}
_UNIT_OFFSETS = {"l": -1, "P": -1, "t": 0, "N": 1, "C": 1}
_MANY_RANGE = (2, 10)
_MAX_YEARS_AHEAD = 10


def _resolve_days(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """From 3 to 9 May."""
    first, last = sorted(_parse_day(tags, items, place) for place in find_tags(tags, "do"))
    return _if_possible(
        AnnualPeriod("dates", find_value(tags, items, "Mm"), first, last, "", reference.find_year(tags, items))
    )


def _resolve_date(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """8 May 2023, Friday, May 8th."""
    day = _parse_day(tags, items, find_tags(tags, "do")[0])
    return _if_possible(
        AnnualPeriod("date", find_value(tags, items, "Mm"), day, day, "", reference.find_year(tags, items))
    )


def _parse_day(tags: str, items: Sequence[TaggedItem], index: int) -> int:
    tens = items[index - 2][0][0] if index >= 2 and tags[index - 2 : index] == "n-" else 0
    return int(items[index][0]) + tens


def _resolve_month(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    return "A", AnnualPeriod("month", find_value(tags, items, "Mm"), year=reference.find_year(tags, items))


def _resolve_quarter(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Q3 2024, the first quarter of 2024."""
    if tags[0] == "o" and (items[1][0][0] != "quarter" or items[0][0] > 4):
        return None
    return "A", AnnualPeriod("quarter", find_value(tags, items, "Qo"), year=reference.find_year(tags, items))


def _resolve_holiday(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    return "A", AnnualPeriod("holiday", name=items[0][0], year=reference.find_year(tags, items))


def _resolve_season(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    return "A", AnnualPeriod("season", items[0][0], year=reference.find_year(tags, items))


def _if_possible(annual: AnnualPeriod) -> RuleResult:
    return ("A", annual) if annual.is_possible() else None


def _resolve_year(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    return "A", to_span((day_number(items[0][0]), day_number(items[0][0] + 1)), "year")


def _resolve_lone_year(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """2023 without a word that makes it a year: not one far ahead, which is rather a title or a count."""
    return (
        _resolve_year(reference, tags, items)
        if items[0][0] <= civil_date(reference.today)[0] + _MAX_YEARS_AHEAD
        else None
    )


def _resolve_decade(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """The 1990s; the 90s, which are the latest that have begun."""
    first = items[0][0]
    if first < 100:
        current_year = civil_date(reference.today)[0]
        first = current_year - (current_year - first) % 100
    return "A", to_span((day_number(first), day_number(first + 10)), "range")


def _resolve_weekday_of_week(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Friday last week."""
    monday = period("week", reference.today, find_value(tags, items, "K"))[0]
    return "A", span_in_day(monday + find_value(tags, items, "Ww"), find_value(tags, items, "p"))


def _resolve_bare_weekday(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    return "J", BareWeekday(items[0][0], find_value(tags, items, "p"))


def _resolve_weekend(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Over the weekend: the latest that has begun."""
    if items[0][0][2]:
        return None
    is_current = weekday(reference.today) >= SATURDAY or reference.tagged_text.is_future(items[0][1])
    return "A", to_span(period("weekend", reference.today, 0 if is_current else -1), "weekend")


def _resolve_period(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Last week, this year."""
    unit: Precision = "week" if tags == "K" else "year"
    return "A", to_span(period(unit, reference.today, items[0][0]), unit)


def _resolve_vague(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Recently."""
    return "A", ((reference.today - items[0][0]) * DAY, reference.now + 1, "range")


def _resolve_day_word(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Today, yesterday evening, this morning, last night."""
    if tags[0] == "D":
        offset, part = items[0][0]
        return "A", span_in_day(reference.today + offset, find_value(tags, items, "p") or part)
    return "A", span_in_day(reference.today - (tags[0] == "l"), items[1][0])


def _resolve_ago(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Two days ago, in a week, a month from now, years ago."""
    sign = 1 if tags[0] == "i" or tags[-1] == "f" else -1
    unit = find_value(tags, items, "uk")
    if tags[0] == "i" and reference.tagged_text.follows_past_verb(items[0][1]):
        return None
    if tags[0] == "u":
        # "Years ago" and "a fortnight ago", but not "the day ago" or "two lines and years earlier".
        if items[-1][0] or not (unit[2] or unit[1] > 1):
            return None
        low, high = _MANY_RANGE if unit[2] else (1, 1)
    else:
        low, high = parse_count(tags, items)
        if "/" in tags and unit[0] == "year":
            unit, low, high = ("month", 1, True), 12 * low + 6, 12 * high + 6
    return "A", shift_by_units(unit, sign * low, sign * high, reference.now)


def _resolve_weekdays_ago(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Two Fridays ago."""
    low, high = parse_count(tags, items)
    latest = reference.resolve_weekday("l", find_value(tags, items, "7"))
    return "A", to_span((latest - 7 * (high - 1), latest - 7 * (low - 1) + 1), "day" if low == high else "range")


def _resolve_rolling(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """The past three weeks, the next two days: up to today, or from tomorrow on."""
    unit, factor, _ = items[-1][0]
    count = parse_count(tags, items)[1] * factor
    ahead = tags[0] in "NC"
    if unit in ("hour", "minute"):
        length = count * (HOUR if unit == "hour" else HOUR // 60)
        begins, ends = (reference.now, reference.now + length) if ahead else (reference.now - length, reference.now)
        return "A", (begins, ends + 1, "range")
    if unit == "weekend":
        has_begun = weekday(reference.today) >= SATURDAY
        first = int(has_begun) if ahead else has_begun - count
        days = period(unit, reference.today, first)[0], period(unit, reference.today, first + count - 1)[1]
    elif ahead:
        days = reference.today + 1, add_units(reference.today + 1, unit, count)
    else:
        days = add_units(reference.today, unit, -count), reference.today + 1
    return "A", to_span(days, "range")


def _resolve_relative(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Last Friday night, this summer, next month, next Christmas."""
    part = find_value(tags, items, "p")
    if tags[-1] == "r":
        which, index = items[-1][0], 0
    else:
        index = len(tags) - 1 - (part is not None)
        which = tags[index - 1]
    tag, value = tags[index], items[index][0]
    if tag in "Ww":
        return "A", span_in_day(reference.resolve_weekday(which, value), part)
    if part is not None:
        return None
    if tag in "uk":
        return _resolve_relative_unit(reference, which, value)
    annual = _build_annual(tag, value)
    days = reference.resolve_annual(which, annual)
    return ("A", to_span(days, annual.precision)) if days else None


def _build_annual(tag: str, value: Any, year: int | None = None) -> AnnualPeriod:
    return (
        AnnualPeriod("holiday", name=value, year=year)
        if tag == "H"
        else AnnualPeriod(_KIND_BY_TAG[tag], value, year=year)
    )


def _resolve_relative_unit(reference: ReferenceTime, which: str, value: Any) -> RuleResult:
    unit, factor, plural = value
    # "The next day" and "the last minute" are told from within a story.
    if plural or unit == "minute" or (unit in ("day", "hour") and which != "P"):
        return None
    if which == "P" and unit != "weekend":
        if unit == "hour":
            return "A", (reference.now - HOUR, reference.now + 1, "range")
        return "A", to_span((add_units(reference.today, unit, -factor), reference.today + 1), "range")
    offset = _UNIT_OFFSETS[which] * factor
    if unit == "weekend" and which == "C" and weekday(reference.today) < SATURDAY:
        offset = 0
    return "A", to_span(period(unit, reference.today, offset), unit_precision(unit))


def _resolve_before_last(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """The week before last, the May after next."""
    sign = -1 if tags[1] == "b" else 1
    tag, value = tags[0], items[0][0]
    if tag == "p":
        return "A", span_in_day(reference.today + 2 * sign, value)
    if tag in "uk":
        return "A", shift_by_units(value, 2 * sign, 2 * sign, reference.now)
    if tag in "Ww":
        return "A", span_in_day(reference.resolve_weekday(tags[2], value) + 7 * sign, None)
    days = reference.resolve_annual(tags[2], _build_annual(tag, value))
    return ("A", _build_annual(tag, value, civil_date(days[0])[0] + sign)) if days else None


def _resolve_part_of_current(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """The end of the month."""
    unit, _, plural = items[-1][0]
    if plural or unit in ("day", "hour", "minute"):
        return None
    return "A", span_part(to_span(period(unit, reference.today, 0), unit_precision(unit)), *items[0][0])


def _resolve_day_of_month(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """On the 15th: the latest that has begun, or the next in a sentence of the future."""
    number, start, end = items[0]
    if end - start > len("15th"):
        return None
    year, month, today = civil_date(reference.today)
    step = 1 if reference.tagged_text.is_future(start) else -1
    if (number - today) * step < 0:
        month += step
    while number > month_length(year, month):
        month += step
    return "A", span_in_day(day_number(year, month, number), None)


_D, _UNIT = DAY_OF_MONTH, "[uk]"
# What is said to come every year or week is no moment, and "last week of …" waits for what follows.
_ONCE, _WHOLE = r"(?<!\*)", r"(?!O[^x])"

STANDALONE_RULES = RuleSet(
    "FBdonWwMmyYKlPNCtukSVHpaviDQZLE",
    (
        (
            rf"(?:F?{_D}[2T-]{_D}|B{_D}&{_D})O?h?[Mm]{YEAR}?"
            rf"|(?:F?[Mm]h?{_D}[2T-]h?{_D}|B[Mm]h?{_D}&h?{_D})(?!O?[Mm]){YEAR}?",
            _resolve_days,
        ),
        (rf"(?:[Ww],?h?)?(?:{_D}(?:O?M|Om|m(?=[,.yY]|$))|[Mm]h?{_D}(?!{_UNIT})){YEAR}?", _resolve_date),
        (rf"M{YEAR}|m,?O?[yY]|m\([yY]\)|[yY],?i?h?M|Yim", _resolve_month),
        (r"[Ww]p?,?O?h?K|K,?q?[Ww]p?", _resolve_weekday_of_week),
        (rf"[lPNC](?:a?n(?:-?n)?|[dcy]){_UNIT}", _resolve_rolling),
        (rf"(?:t?[lPNC](?:[ukHQSVWw]|[Mm](?![do]))|t[ukHQSVWwM]){_WHOLE}p?|[ukWwMmSVH]r", _resolve_relative),
        (r"[ukWwMmSVHp](?:bl|eN)(?![uk])", _resolve_before_last),
        (rf"{COUNT}{_UNIT}/?[Gf]|v{COUNT}{_UNIT}|(?<!z)i{COUNT}{_UNIT}(?![be])|(?<!#)uG", _resolve_ago),
        (rf"{COUNT}7G", _resolve_weekdays_ago),
        (r"Dp?|tp|lp", _resolve_day_word),
        (rf"Q{YEAR}?|yQ|ou{YEAR}?", _resolve_quarter),
        (rf"H{YEAR}|{_ONCE}H", _resolve_holiday),
        (
            rf"[SV]{YEAR}|(?<=[ij])[SV]|(?<=[ij]h)[SV]|(?<=qh)S|(?<=[sbeTE])S|(?<=[sbeT]h)S|(?<=E-)S|(?<=E)V",
            _resolve_season,
        ),
        (r"(?<=[jq]h)k|(?<=[jq])k", _resolve_weekend),
        (r"Z", _resolve_decade),
        (r"L", _resolve_vague),
        (r"K(?!O[^x])|Y", _resolve_period),
        (rf"E-?O?h{_UNIT}", _resolve_part_of_current),
        (rf"{_ONCE}M|(?<=[isTFBEO])m|(?<=E-)m|(?<=[FB][Mm][2&T-])m", _resolve_month),
        (rf"{_ONCE}Wp?|(?<=q)wp?", _resolve_bare_weekday),
        (r"(?<=[iOsjTFBbehE])y|(?<=E-)y|(?<=[FB]y[2&T-])y|(?<=y-)y|y(?=-y)", _resolve_year),
        (r"(?<!#)y(?![xndcuko#zG]|-[dcno])", _resolve_lone_year),
        (r"(?<=qh)o(?![xukWwO])", _resolve_day_of_month),
    ),
)
