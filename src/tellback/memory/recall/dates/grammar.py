"""The grammar of time expressions: rules, regular expressions over tags, in three rounds.

First times that stand alone ("8 May", "last week"), then times relative to another one ("the Friday before …", "the
end of …"), then ranges ("since …")."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tellback.memory.recall.dates.calendar import (
    DAY,
    HOUR,
    SATURDAY,
    AnnualKind,
    AnnualPeriod,
    Precision,
    civil_date,
    day_number,
    month_length,
    period,
    weekday,
)
from tellback.memory.recall.dates.lexer import TaggedItem
from tellback.memory.recall.dates.resolver import (
    BareWeekday,
    ReferenceTime,
    ResolvedSpan,
    TimeExpression,
    add_units,
    nearby_weekend,
    shift_by_units,
    span_in_day,
    span_part,
    to_span,
    unit_precision,
)

RuleResult = tuple[str, TimeExpression] | None
"""The tag and the meaning of what takes the place of the match, or None if it means nothing."""

RuleAction = Callable[[ReferenceTime, str, Sequence[TaggedItem]], RuleResult]

COUNT = r"(?:a?n(?:-?n)?|[adcy])/?"
DAY_OF_MONTH = r"(?:(?:n-)?o|d)"
YEAR = r"(?:,?O?i?h?[yY]|\([yY]\))"

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

_D, _UNIT = DAY_OF_MONTH, "[uk]"
# What is said to come every year or week is no moment, and "last week of …" waits for what follows.
_ONCE, _WHOLE = r"(?<!\*)", r"(?!O[^x])"

_FAR_AWAY = (200 * 365 + 48) * DAY

_UNIT_STEPS: dict[str, tuple[int, int, Precision]] = {
    "day": (1, 1, "day"),
    "weekday": (7, 1, "day"),
    "weekend": (7, 2, "weekend"),
    "week": (7, 7, "week"),
}


class RuleSet:
    """One round: every match becomes one piece."""

    __slots__ = ("_actions", "_pattern")

    def __init__(self, first_tags: str, rules: Sequence[tuple[str, RuleAction]]) -> None:
        self._actions = [action for _, action in rules]
        # Most words start nothing: looking for those that can first is several times faster.
        self._pattern = re.compile(f"(?=[{first_tags}])(?:{'|'.join(f'({rule})' for rule, _ in rules)})")

    def apply(self, reference: ReferenceTime) -> bool:
        """Replaces what matches in the tagged text of a moment; whether anything did."""
        tagged_text, search = reference.tagged_text, self._pattern.search
        tags, items = tagged_text.tags, tagged_text.items
        match = search(tags)
        pieces: list[str] = []
        new_items: list[TaggedItem] = []
        consumed = 0
        while match:
            start, end = match.span()
            result = self._actions[(match.lastindex or 1) - 1](reference, tags[start:end], items[start:end])
            if result is None:
                match = search(tags, start + 1)
                continue
            pieces += (tags[consumed:start], result[0])
            new_items += items[consumed:start]
            new_items.append((result[1], items[start][1], items[end - 1][2]))
            consumed = end
            match = search(tags, end)
        if not pieces:
            return False
        tagged_text.tags = "".join(pieces) + tags[consumed:]
        tagged_text.items = new_items + items[consumed:]
        return True


def find_value(tags: str, items: Sequence[TaggedItem], wanted_tags: str) -> Any:
    """The value of the first word with one of some tags, or None."""
    for index, tag in enumerate(tags):
        if tag in wanted_tags:
            return items[index][0]
    return None


def find_tags(tags: str, wanted_tags: str) -> list[int]:
    """Where tags are."""
    return [index for index, tag in enumerate(tags) if tag in wanted_tags]


def parse_count(tags: str, items: Sequence[TaggedItem]) -> tuple[int, int]:
    """At least and at most how many; "twenty-one" is two words."""
    low = high = 0
    for index, tag in enumerate(tags):
        value = items[index][0]
        if tag == "n" or (tag == "a" and tags[index + 1 : index + 2] != "n"):
            low, high = low + value[0], high + value[1]
        elif tag in "dcy":
            low, high = low + value, high + value
    return low, high


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


def _resolve_annual(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Easter 2024, spring."""
    return "A", _build_annual(tags[0], items[0][0], reference.find_year(tags, items))


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
        (rf"H{YEAR}|{_ONCE}H", _resolve_annual),
        (
            rf"[SV]{YEAR}|(?<=[ij])[SV]|(?<=[ij]h)[SV]|(?<=qh)S|(?<=[sbeTE])S|(?<=[sbeT]h)S|(?<=E-)S|(?<=E)V",
            _resolve_annual,
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


def _resolve_nth(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """The first Monday of June, the last weekend of August, the second month of 2023."""
    whole = reference.resolve(items[-1][0], items[-1][1])
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
        year, month, _ = civil_date(start)
        days = day_number(year, month + nth - 1), day_number(year, month + nth)
        return ("A", to_span(days, "month")) if days[1] <= end else None
    if unit not in _UNIT_STEPS:
        return None
    step, length, precision = _UNIT_STEPS[unit]
    first = start
    if unit in ("weekday", "weekend"):
        first += ((items[1][0].number if unit == "weekday" else SATURDAY) - weekday(start)) % 7
    if nth > 0:
        begins = first + (nth - 1) * step
    else:
        begins = end - length - (0 if unit == "week" else (end - length - first) % step)
    return ("A", to_span((begins, begins + length), precision)) if start <= begins < end else None


def _resolve_part(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Early May, the end of last year."""
    expression, position, _ = items[-1]
    whole = reference.resolve(expression, position)
    if whole is None:
        return None
    span = span_part(whole, *items[0][0])
    if isinstance(expression, AnnualPeriod) and expression.year is None:
        # In early May, late May is still the one of last year.
        is_future = reference.tagged_text.is_future(position)
        year_offset = (span[1] <= reference.now) if is_future else -(span[0] > reference.now)
        if year_offset and (days := expression.in_year(civil_date(whole[0] // DAY)[0] + year_offset)):
            span = span_part(to_span(days, expression.precision), *items[0][0])
    return "A", span


def _resolve_offset(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Two days before, the weekend after, the Friday before something."""
    expression, position, _ = items[-1]
    if "F" in tags and isinstance(expression, BareWeekday):
        base: ResolvedSpan | None = span_in_day(reference.resolve_weekday("N", expression.number), None)
    else:
        base = reference.resolve(expression, position)
    if base is None:
        return None
    sign = -1 if "b" in tags or "v" in tags else 1
    edge = base[0] if sign < 0 else base[1] - 1
    day = edge // DAY
    value = items[0][0]
    if tags[0] == "J":
        distance = sign * (value.number - weekday(day)) % 7 or 7
        return "A", span_in_day(day + sign * distance, value.part)
    if tags[0] == "p":
        return "A", span_in_day(day + sign, value)
    unit = find_value(tags, items, "uk")
    if tags[0] in "uk":
        # "The years before" is not one year.
        if unit[2]:
            return None
        low, high = 1, 1
    else:
        low, high = parse_count(tags, items)
    if unit[0] == "weekend":
        ends = nearby_weekend(day, sign * low) + nearby_weekend(day, sign * high)
        return "A", to_span((min(ends), max(ends)), "weekend" if low == high else "range")
    return "A", shift_by_units(unit, sign * low, sign * high, edge)


def _resolve_containing(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """The week of 8 May, the night of the 3rd of June, the month of May."""
    base = reference.resolve(items[-1][0], items[-1][1])
    if base is None:
        return None
    day = base[0] // DAY
    if tags[0] == "p":
        return ("A", span_in_day(day, items[0][0])) if base[2] == "day" else None
    unit, _, plural = items[0][0]
    if plural or unit in ("hour", "minute"):
        return None
    span = to_span(period(unit, day, 0), unit_precision(unit))
    # "The day of last week's party" says no more than "last week".
    return "A", span if unit == "weekend" or span[1] - span[0] >= base[1] - base[0] else base


def _resolve_clipped(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Earlier this week, later this year."""
    whole = reference.resolve(items[1][0], items[1][1])
    if whole is None or (tags[0] == "G" and not items[0][0]) or not whole[0] <= reference.now < whole[1]:
        return None
    if whole[2] == "day":
        return "A", whole
    begins, ends = (whole[0], reference.now + 1) if tags[0] == "G" else (reference.now, whole[1])
    return "A", (begins, ends, "range")


def _resolve_between(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Between May and July 2023, from Monday to Friday: an end without a year takes it from the other."""
    places = find_tags(tags, "AJ")
    (first, begins_at, _), (last, ends_at, _) = items[places[0]], items[places[1]]
    until = _resolve_range_end(reference, first, begins_at, last, ends_at)
    if until is None:
        return None
    day = until[0] // DAY
    since: ResolvedSpan | None
    if isinstance(first, AnnualPeriod) and first.year is None:
        days = first.latest_begun(day)
        since = to_span(days, first.precision) if days else None
    elif isinstance(first, BareWeekday):
        since = span_in_day(day - (weekday(day) - first.number) % 7, first.part)
    else:
        since = reference.resolve(first, begins_at)
    if since is None or since[0] >= until[1] or since == until:
        return None
    return "A", (since[0], until[1], "range")


def _resolve_range_end(
    reference: ReferenceTime, first: TimeExpression, begins_at: int, last: TimeExpression, ends_at: int
) -> ResolvedSpan | None:
    has_year = isinstance(first, tuple) or (isinstance(first, AnnualPeriod) and first.year is not None)
    start = reference.resolve(first, begins_at) if has_year else None
    if start is not None and isinstance(last, AnnualPeriod) and last.year is None:
        days = last.earliest_unfinished(start[0] // DAY)
        return to_span(days, last.precision) if days else None
    if start is not None and isinstance(last, BareWeekday):
        day = start[1] // DAY - 1
        return span_in_day(day + ((last.number - weekday(day)) % 7 or 7), last.part)
    return reference.resolve(last, ends_at)


def _resolve_open_range(reference: ReferenceTime, tags: str, items: Sequence[TaggedItem]) -> RuleResult:
    """Since and after run to now, or on for long where that is past; before and until come from long ago, or now."""
    expression, position, _ = items[-1]
    if tags[0] == "T" and isinstance(expression, BareWeekday):
        limit: ResolvedSpan | None = span_in_day(reference.resolve_weekday("N", expression.number), expression.part)
    else:
        limit = reference.resolve(expression, position)
    if limit is None:
        return None
    begins, ends, _ = limit
    now = reference.now
    if tags[0] == "s":
        return ("A", (begins, now + 1, "range")) if begins <= now else None
    if tags[0] == "e":
        open_ended = ends > now or reference.tagged_text.is_future(position)
        return "A", (ends, max(ends, now) + _FAR_AWAY if open_ended else now + 1, "range")
    if tags[0] == "T":
        return "A", (now if begins > now else begins - _FAR_AWAY, ends, "range")
    return "A", (min(begins, now) - _FAR_AWAY, begins, "range")


DEPENDENT_RULES = RuleSet(
    "olKEandcyukpJGg",
    (
        (r"[ol][ukJ][Oi]h?A|KOh?A", _resolve_nth),
        (r"E-?[Oi]?h?A", _resolve_part),
        # "Two days before the Friday before …" starts with the Friday.
        (rf"(?:(?:{COUNT}[uk]|[ukpJ])[bev]|{COUNT}[uk]F)h?(?:A|J(?![bev]h?[AJ]))", _resolve_offset),
        (r"[ukp]Oh?[AJ]", _resolve_containing),
        (r"[Gg]A", _resolve_clipped),
    ),
)

RANGE_RULES = RuleSet(
    "BFhAJsbevT",
    (
        (r"Bh?[AJ]&h?[AJ]|(?:Fh?)?[AJ][2T-]h?[AJ]", _resolve_between),
        (r"[sbevT]h?[AJ]", _resolve_open_range),
    ),
)
