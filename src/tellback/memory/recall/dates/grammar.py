"""The grammar of time expressions: rules, which are regular expressions over tags, applied in three rounds.

The first round resolves independent times ("8 May", "last week"), the second times relative to another time ("the
Friday before …", "the end of …"), and the third ranges ("since …").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.memory.recall.dates.calendar import (
    DAY,
    HOUR,
    SATURDAY,
    AnnualPeriod,
    DayRange,
    Precision,
    ResolvedSpan,
    TimeSpan,
    add_units,
    annual_days,
    annual_holiday,
    annual_months,
    civil_date,
    day_number,
    month_length,
    nearby_weekend,
    period,
    shift_by_units,
    span_in_day,
    span_part,
    to_span,
    unit_span,
    weekday,
)
from tellback.memory.recall.dates.lexer import TaggedItem, TaggedText
from tellback.memory.recall.dates.vocabulary import Language

_COUNT = r"(?:a?n(?:-?n)?|[adcy])/?"
_DAY = r"(?:(?:n-)?o|d)"
_YEAR = r"(?:,?O?i?h?[yY]|\([yY]\))"
_UNIT = "[uk]"
# "Every May" is not a single time, and "last week of …" depends on the words that follow.
_ONCE, _WHOLE = r"(?<!\*)", r"(?!O[^x])"

_UNIT_OFFSETS = {"l": -1, "P": -1, "t": 0, "N": 1, "C": 1}
_MANY_RANGE = (2, 10)
_MAX_YEARS_AHEAD = 10
# "The day after the Friday before the end of May" has three dependent times.
_MAX_DEPENDENT_ROUNDS = 4
_RESOLVED_TAG = re.compile("[AJ]")

_EARLIEST, _LATEST = day_number(1) * DAY, day_number(10_000) * DAY
_FAR_AWAY = (200 * 365 + 48) * DAY

_UNIT_STEPS: dict[str, tuple[int, int, Precision]] = {
    "day": (1, 1, "day"),
    "weekday": (7, 1, "day"),
    "weekend": (7, 2, "weekend"),
    "week": (7, 7, "week"),
}


@dataclass(slots=True)
class BareWeekday:
    """A weekday without a word such as "last" or "next"."""

    number: int
    part: str | None


TimeExpression = AnnualPeriod | BareWeekday | ResolvedSpan
"""The meaning of words so far. "May" has no year until the whole sentence is parsed."""


class ReferenceTime:
    """A reference time and the text that is parsed relative to it."""

    __slots__ = ("now", "tagged_text", "today")

    def __init__(self, tagged_text: TaggedText, now: int) -> None:
        self.tagged_text = tagged_text
        self.now = min(max(now, _EARLIEST), _LATEST - 1)
        self.today = self.now // DAY

    def resolve(self, expression: TimeExpression, position: int) -> ResolvedSpan | None:
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
        """Return the day of the last (`l`, `P`), next (`N`, `C`) or this week's (`t`) given weekday."""
        today = weekday(self.today)
        if which in "lP":
            return self.today - ((today - number) % 7 or 7)
        if which in "NC":
            return self.today + ((number - today) % 7 or 7)
        return self.today - today + number

    def resolve_annual(self, which: str, annual: AnnualPeriod) -> DayRange | None:
        """Return the last, next or this year's given month, season or holiday."""
        if which in "lP":
            return annual.latest_ended(self.today)
        return annual.earliest_upcoming(self.today) if which in "NC" else annual.current(self.today)


@dataclass(slots=True)
class Words:
    """The words that a rule matches, as tags and values, and the reference time."""

    reference: ReferenceTime
    tags: str
    items: Sequence[TaggedItem]

    @property
    def today(self) -> int:
        return self.reference.today

    @property
    def first(self) -> Any:
        return self.items[0][0]

    def value(self, wanted_tags: str) -> Any:
        """Return the value of the first word with one of the tags, or None."""
        for tag, item in zip(self.tags, self.items, strict=True):
            if tag in wanted_tags:
                return item[0]
        return None

    def count(self) -> tuple[int, int]:
        """Return the minimum and maximum count; "twenty-one" is two words."""
        low = high = 0
        for index, tag in enumerate(self.tags):
            value = self.items[index][0]
            if tag == "n" or (tag == "a" and self.tags[index + 1 : index + 2] != "n"):
                low, high = low + value[0], high + value[1]
            elif tag in "dcy":
                low, high = low + value, high + value
        return low, high

    def year(self) -> int | None:
        for tag, item in zip(self.tags, self.items, strict=True):
            if tag in "yY":
                return int(item[0]) + (civil_date(self.today)[0] if tag == "Y" else 0)
        return None

    def resolve(self, index: int = -1) -> ResolvedSpan | None:
        expression, position, _ = self.items[index]
        return self.reference.resolve(expression, position)


Rule = tuple[str, Callable[[Words], TimeExpression | None]]
"""A regular expression over tags, and a function that resolves the matching words, or returns None if they mean no
time."""


class RuleSet:
    """One round: each match becomes one item, tagged `J` for a bare weekday and `A` for any other time."""

    __slots__ = ("_actions", "_pattern")

    def __init__(self, first_tags: str, rules: Sequence[Rule]) -> None:
        self._actions = [action for _, action in rules]
        # Most words start no rule. Checking the first tag beforehand is several times faster.
        self._pattern = re.compile(f"(?=[{first_tags}])(?:{'|'.join(f'({rule})' for rule, _ in rules)})")

    def apply(self, reference: ReferenceTime) -> bool:
        """Replace the matches in the tagged text, and return whether there were any."""
        tagged_text, search = reference.tagged_text, self._pattern.search
        tags, items = tagged_text.tags, tagged_text.items
        match = search(tags)
        pieces: list[str] = []
        new_items: list[TaggedItem] = []
        consumed = 0
        while match:
            start, end = match.span()
            result = self._actions[(match.lastindex or 1) - 1](Words(reference, tags[start:end], items[start:end]))
            if result is None:
                match = search(tags, start + 1)
                continue
            pieces += (tags[consumed:start], "J" if isinstance(result, BareWeekday) else "A")
            new_items += items[consumed:start]
            new_items.append((result, items[start][1], items[end - 1][2]))
            consumed = end
            match = search(tags, end)
        if not pieces:
            return False
        tagged_text.tags = "".join(pieces) + tags[consumed:]
        tagged_text.items = new_items + items[consumed:]
        return True


def _resolve_days(words: Words) -> TimeExpression | None:
    """Resolve "8 May 2023", "Friday, May 8th" or "from 3 to 9 May"."""
    days: list[int] = []
    for index, tag in enumerate(words.tags):
        if tag in "do":
            tens = words.items[index - 2][0][0] if words.tags[:index].endswith("n-") else 0
            days.append(words.items[index][0] + tens)
    return annual_days("day" if len(days) == 1 else "range", words.value("Mm"), min(days), max(days), words.year())


def _resolve_annual(words: Words) -> TimeExpression:
    """Resolve "Easter 2024", "spring", "May 2023" or "Q3 2024"."""
    index = next(index for index, tag in enumerate(words.tags) if tag in "MmSVHQ")
    return _build_annual(words.tags[index], words.items[index][0], words.year())


def _build_annual(tag: str, value: Any, year: int | None = None) -> AnnualPeriod:
    if tag == "H":
        return annual_holiday(value, year)
    if tag in "SV":
        return annual_months("season", 3 + 3 * value, 3, year)
    return annual_months("range", 3 * value - 2, 3, year) if tag == "Q" else annual_months("month", value, 1, year)


def _resolve_quarter(words: Words) -> TimeExpression | None:
    """Resolve "the first quarter of 2024"."""
    is_quarter = words.items[1][0][0] == "quarter" and words.first <= 4
    return _build_annual("Q", words.first, words.year()) if is_quarter else None


def _resolve_year(words: Words) -> TimeExpression:
    return unit_span("year", day_number(words.first))


def _resolve_lone_year(words: Words) -> TimeExpression | None:
    """Resolve a bare "2023". A number far in the future is more likely a title or a count."""
    return _resolve_year(words) if words.first <= civil_date(words.today)[0] + _MAX_YEARS_AHEAD else None


def _resolve_decade(words: Words) -> TimeExpression:
    """Resolve "the 1990s", or "the 90s" as the latest that have begun."""
    first = words.first
    if first < 100:
        current_year = civil_date(words.today)[0]
        first = current_year - (current_year - first) % 100
    return to_span((day_number(first), day_number(first + 10)), "range")


def _resolve_weekday_of_week(words: Words) -> TimeExpression:
    """Resolve "Friday last week"."""
    monday = period("week", words.today, words.value("K"))[0]
    return span_in_day(monday + words.value("Ww"), words.value("p"))


def _resolve_bare_weekday(words: Words) -> TimeExpression:
    return BareWeekday(words.first, words.value("p"))


def _resolve_weekend(words: Words) -> TimeExpression | None:
    """Resolve "over the weekend" as the latest that has begun."""
    (_, _, plural), position, _ = words.items[0]
    is_current = weekday(words.today) >= SATURDAY or words.reference.tagged_text.is_future(position)
    return None if plural else unit_span("weekend", words.today, 0 if is_current else -1)


def _resolve_period(words: Words) -> TimeExpression:
    """Resolve "last week" or "this year"."""
    return unit_span("week" if words.tags == "K" else "year", words.today, words.first)


def _resolve_vague(words: Words) -> TimeExpression:
    """Resolve "recently" or "the other day"."""
    return (words.today - words.first) * DAY, words.reference.now + 1, "range"


def _resolve_day_word(words: Words) -> TimeExpression:
    """Resolve "today", "yesterday evening", "this morning" or "last night"."""
    if words.tags[0] == "D":
        offset, part = words.first
        return span_in_day(words.today + offset, words.value("p") or part)
    return span_in_day(words.today - (words.tags[0] == "l"), words.items[1][0])


def _resolve_ago(words: Words) -> TimeExpression | None:
    """Resolve "two days ago", "in a week", "a month from now" or "years ago"."""
    tags, unit = words.tags, words.value("uk")
    sign = 1 if tags[0] == "i" or tags[-1] == "f" else -1
    if tags[0] == "i" and words.reference.tagged_text.follows_past_verb(words.items[0][1]):
        return None
    if tags[0] == "u":
        # "Years ago" and "a fortnight ago", but not "the day ago" or "two lines and years earlier".
        if words.items[-1][0] or not (unit[2] or unit[1] > 1):
            return None
        low, high = _MANY_RANGE if unit[2] else (1, 1)
    else:
        low, high = words.count()
        if "/" in tags and unit[0] == "year":
            unit, low, high = ("month", 1, True), 12 * low + 6, 12 * high + 6
    return shift_by_units(unit, sign * low, sign * high, words.reference.now)


def _resolve_weekdays_ago(words: Words) -> TimeExpression:
    """Resolve "two Fridays ago"."""
    low, high = words.count()
    latest = words.reference.resolve_weekday("l", words.value("7"))
    return to_span((latest - 7 * (high - 1), latest - 7 * (low - 1) + 1), "day" if low == high else "range")


def _resolve_rolling(words: Words) -> TimeExpression:
    """Resolve "the past three weeks" up to today, or "the next two days" from tomorrow on."""
    unit, factor, _ = words.items[-1][0]
    now, today = words.reference.now, words.today
    count = words.count()[1] * factor
    ahead = words.tags[0] in "NC"
    if unit in ("hour", "minute"):
        length = count * (HOUR if unit == "hour" else HOUR // 60)
        begins, ends = (now, now + length) if ahead else (now - length, now)
        return begins, ends + 1, "range"
    if unit == "weekend":
        has_begun = weekday(today) >= SATURDAY
        first = int(has_begun) if ahead else has_begun - count
        days = period(unit, today, first)[0], period(unit, today, first + count - 1)[1]
    elif ahead:
        days = today + 1, add_units(today + 1, unit, count)
    else:
        days = add_units(today, unit, -count), today + 1
    return to_span(days, "range")


def _resolve_relative(words: Words) -> TimeExpression | None:
    """Resolve "last Friday night", "this summer", "next month" or "next Christmas"."""
    tags, part = words.tags, words.value("p")
    if tags[-1] == "r":
        which, index = words.items[-1][0], 0
    else:
        index = len(tags) - 1 - (part is not None)
        which = tags[index - 1]
    tag, value = tags[index], words.items[index][0]
    if tag in "Ww":
        return span_in_day(words.reference.resolve_weekday(which, value), part)
    if part is not None:
        return None
    if tag in "uk":
        return _resolve_relative_unit(words, which, value)
    annual = _build_annual(tag, value)
    days = words.reference.resolve_annual(which, annual)
    return to_span(days, annual.precision) if days else None


def _resolve_relative_unit(words: Words, which: str, value: Any) -> TimeExpression | None:
    unit, factor, plural = value
    now, today = words.reference.now, words.today
    # "The next day" and "the last minute" are relative to a story, not to the reference time.
    if plural or unit == "minute" or (unit in ("day", "hour") and which != "P"):
        return None
    if which == "P" and unit != "weekend":
        if unit == "hour":
            return now - HOUR, now + 1, "range"
        return to_span((add_units(today, unit, -factor), today + 1), "range")
    offset = _UNIT_OFFSETS[which] * factor
    if unit == "weekend" and which == "C" and weekday(today) < SATURDAY:
        offset = 0
    return unit_span(unit, today, offset)


def _resolve_before_last(words: Words) -> TimeExpression | None:
    """Resolve "the week before last" or "the May after next"."""
    sign = -1 if words.tags[1] == "b" else 1
    tag, value = words.tags[0], words.first
    if tag == "p":
        return span_in_day(words.today + 2 * sign, value)
    if tag in "uk":
        return shift_by_units(value, 2 * sign, 2 * sign, words.reference.now)
    if tag in "Ww":
        return span_in_day(words.reference.resolve_weekday(words.tags[2], value) + 7 * sign, None)
    days = words.reference.resolve_annual(words.tags[2], _build_annual(tag, value))
    return _build_annual(tag, value, civil_date(days[0])[0] + sign) if days else None


def _resolve_part_of_current(words: Words) -> TimeExpression | None:
    """Resolve "the end of the month"."""
    unit, _, plural = words.items[-1][0]
    if plural or unit in ("day", "hour", "minute"):
        return None
    return span_part(unit_span(unit, words.today), *words.first)


def _resolve_day_of_month(words: Words) -> TimeExpression | None:
    """Resolve "on the 15th": the latest that has begun, or the next in a sentence about the future."""
    number, start, end = words.items[0]
    if end - start > len("15th"):
        return None
    year, month, today = civil_date(words.today)
    step = 1 if words.reference.tagged_text.is_future(start) else -1
    if (number - today) * step < 0:
        month += step
    while number > month_length(year, month):
        month += step
    return span_in_day(day_number(year, month, number), None)


STANDALONE_RULES = RuleSet(
    "FBdonWwMmyYKlPNCtukSVHpaviDQZLE",
    (
        (
            rf"(?:F?{_DAY}[2T-]{_DAY}|B{_DAY}&{_DAY})O?h?[Mm]{_YEAR}?"
            rf"|(?:F?[Mm]h?{_DAY}[2T-]h?{_DAY}|B[Mm]h?{_DAY}&h?{_DAY})(?!O?[Mm]){_YEAR}?",
            _resolve_days,
        ),
        (rf"(?:[Ww],?h?)?(?:{_DAY}(?:O?M|Om|m(?=[,.yY]|$))|[Mm]h?{_DAY}(?!{_UNIT})){_YEAR}?", _resolve_days),
        (rf"M{_YEAR}|m,?O?[yY]|m\([yY]\)|[yY],?i?h?M|Yim", _resolve_annual),
        (r"[Ww]p?,?O?h?K|K,?q?[Ww]p?", _resolve_weekday_of_week),
        (rf"[lPNC](?:a?n(?:-?n)?|[dcy]){_UNIT}", _resolve_rolling),
        (rf"(?:t?[lPNC](?:[ukHQSVWw]|[Mm](?![do]))|t[ukHQSVWwM]){_WHOLE}p?|[ukWwMmSVH]r", _resolve_relative),
        (r"[ukWwMmSVHp](?:bl|eN)(?![uk])", _resolve_before_last),
        (rf"{_COUNT}{_UNIT}/?[Gf]|v{_COUNT}{_UNIT}|(?<!z)i{_COUNT}{_UNIT}(?![be])|(?<!#)uG", _resolve_ago),
        (rf"{_COUNT}7G", _resolve_weekdays_ago),
        (r"Dp?|tp|lp", _resolve_day_word),
        (rf"Q{_YEAR}?|yQ", _resolve_annual),
        (rf"ou{_YEAR}?", _resolve_quarter),
        (rf"H{_YEAR}|{_ONCE}H", _resolve_annual),
        (
            rf"[SV]{_YEAR}|(?<=[ij])[SV]|(?<=[ij]h)[SV]|(?<=qh)S|(?<=[sbeTE])S|(?<=[sbeT]h)S|(?<=E-)S|(?<=E)V",
            _resolve_annual,
        ),
        (r"(?<=[jq]h)k|(?<=[jq])k", _resolve_weekend),
        (r"Z", _resolve_decade),
        (r"L", _resolve_vague),
        (r"K(?!O[^x])|Y", _resolve_period),
        (rf"E-?O?h{_UNIT}", _resolve_part_of_current),
        (rf"{_ONCE}M|(?<=[isTFBEO])m|(?<=E-)m|(?<=[FB][Mm][2&T-])m", _resolve_annual),
        (rf"{_ONCE}Wp?|(?<=q)wp?", _resolve_bare_weekday),
        (r"(?<=[iOsjTFBbehE])y|(?<=E-)y|(?<=[FB]y[2&T-])y|(?<=y-)y|y(?=-y)", _resolve_year),
        (r"(?<!#)y(?![xndcuko#zG]|-[dcno])", _resolve_lone_year),
        (r"(?<=qh)o(?![xukWwO])", _resolve_day_of_month),
    ),
)


def _resolve_nth(words: Words) -> TimeExpression | None:
    """Resolve "the first Monday of June", "the last weekend of August" or "the second month of 2023"."""
    whole = words.resolve()
    if whole is None or whole[1] - whole[0] < 7 * DAY:
        return None
    start, end = whole[0] // DAY, whole[1] // DAY
    second = words.items[1][0]
    if words.tags[0] == "K":
        nth, unit = words.first, "week"
    else:
        nth = words.first if words.tags[0] == "o" else -1
        unit = "weekday" if words.tags[1] == "J" else second[0]
    if nth == 0:
        return None
    if unit == "month" and nth > 0:
        days = period("month", start, nth - 1)
        return to_span(days, "month") if days[1] <= end else None
    if unit not in _UNIT_STEPS:
        return None
    step, length, precision = _UNIT_STEPS[unit]
    first = start
    if unit in ("weekday", "weekend"):
        first += ((second.number if unit == "weekday" else SATURDAY) - weekday(start)) % 7
    if nth > 0:
        begins = first + (nth - 1) * step
    else:
        begins = end - length - (0 if unit == "week" else (end - length - first) % step)
    return to_span((begins, begins + length), precision) if start <= begins < end else None


def _resolve_part(words: Words) -> TimeExpression | None:
    """Resolve "early May" or "the end of last year"."""
    expression, position, _ = words.items[-1]
    whole = words.resolve()
    if whole is None:
        return None
    span = span_part(whole, *words.first)
    if isinstance(expression, AnnualPeriod) and expression.year is None:
        # In early May, "late May" means the one of last year.
        now = words.reference.now
        year_offset = (span[1] <= now) if words.reference.tagged_text.is_future(position) else -(span[0] > now)
        if year_offset and (days := expression.in_year(civil_date(whole[0] // DAY)[0] + year_offset)):
            span = span_part(to_span(days, expression.precision), *words.first)
    return span


def _resolve_offset(words: Words) -> TimeExpression | None:
    """Resolve "two days before", "the weekend after" or "the Friday before" a time."""
    tags, expression = words.tags, words.items[-1][0]
    if "F" in tags and isinstance(expression, BareWeekday):
        base: ResolvedSpan | None = span_in_day(words.reference.resolve_weekday("N", expression.number), None)
    else:
        base = words.resolve()
    if base is None:
        return None
    sign = -1 if "b" in tags or "v" in tags else 1
    edge = base[0] if sign < 0 else base[1] - 1
    day = edge // DAY
    if tags[0] == "J":
        distance = sign * (words.first.number - weekday(day)) % 7 or 7
        return span_in_day(day + sign * distance, words.first.part)
    if tags[0] == "p":
        return span_in_day(day + sign, words.first)
    unit = words.value("uk")
    if tags[0] in "uk":
        # "The years before" is more than one year.
        if unit[2]:
            return None
        low, high = 1, 1
    else:
        low, high = words.count()
    if unit[0] == "weekend":
        ends = nearby_weekend(day, sign * low) + nearby_weekend(day, sign * high)
        return to_span((min(ends), max(ends)), "weekend" if low == high else "range")
    return shift_by_units(unit, sign * low, sign * high, edge)


def _resolve_containing(words: Words) -> TimeExpression | None:
    """Resolve "the week of 8 May", "the night of the 3rd of June" or "the month of May"."""
    base = words.resolve()
    if base is None:
        return None
    day = base[0] // DAY
    if words.tags[0] == "p":
        return span_in_day(day, words.first) if base[2] == "day" else None
    unit, _, plural = words.first
    if plural or unit in ("hour", "minute"):
        return None
    span = unit_span(unit, day)
    # "The day of last week's party" is no more precise than "last week".
    return span if unit == "weekend" or span[1] - span[0] >= base[1] - base[0] else base


def _resolve_clipped(words: Words) -> TimeExpression | None:
    """Resolve "earlier this week" or "later this year"."""
    whole, now = words.resolve(1), words.reference.now
    is_earlier = words.tags[0] == "G"
    if whole is None or (is_earlier and not words.first) or not whole[0] <= now < whole[1]:
        return None
    if whole[2] == "day":
        return whole
    return (whole[0], now + 1, "range") if is_earlier else (now, whole[1], "range")


def _resolve_between(words: Words) -> TimeExpression | None:
    """Resolve "between May and July 2023" or "from Monday to Friday". An end without a year takes it from the other."""
    (first, begins_at, _), last_item = [item for tag, item in zip(words.tags, words.items, strict=True) if tag in "AJ"]
    until = _resolve_range_end(words.reference, first, begins_at, *last_item[:2])
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
        since = words.reference.resolve(first, begins_at)
    return None if since is None or since[0] >= until[1] or since == until else (since[0], until[1], "range")


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


def _resolve_open_range(words: Words) -> TimeExpression | None:
    """Resolve "since", "after", "before" and "until": they extend to the reference time, or far into the past or
    future."""
    expression, position, _ = words.items[-1]
    tag, now = words.tags[0], words.reference.now
    if tag == "T" and isinstance(expression, BareWeekday):
        limit: ResolvedSpan | None = span_in_day(
            words.reference.resolve_weekday("N", expression.number), expression.part
        )
    else:
        limit = words.resolve()
    if limit is None:
        return None
    begins, ends, _ = limit
    if tag == "s":
        return (begins, now + 1, "range") if begins <= now else None
    if tag == "e":
        open_ended = ends > now or words.reference.tagged_text.is_future(position)
        return ends, max(ends, now) + _FAR_AWAY if open_ended else now + 1, "range"
    if tag == "T":
        return now if begins > now else begins - _FAR_AWAY, ends, "range"
    return min(begins, now) - _FAR_AWAY, begins, "range"


DEPENDENT_RULES = RuleSet(
    "olKEandcyukpJGg",
    (
        (r"[ol][ukJ][Oi]h?A|KOh?A", _resolve_nth),
        (r"E-?[Oi]?h?A", _resolve_part),
        # "Two days before the Friday before …" starts with the Friday.
        (rf"(?:(?:{_COUNT}[uk]|[ukpJ])[bev]|{_COUNT}[uk]F)h?(?:A|J(?![bev]h?[AJ]))", _resolve_offset),
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


def find_spans(text: str, language: Language, reference_us: int) -> tuple[TimeSpan, ...]:
    """Return the meaning of the time expressions of a text, in the order of the text."""
    tagged_text = TaggedText(text, language)
    reference = ReferenceTime(tagged_text, reference_us)
    STANDALONE_RULES.apply(reference)
    if "A" not in tagged_text.tags and "J" not in tagged_text.tags:
        return ()
    if len(tagged_text.tags) > 1:
        for _ in range(_MAX_DEPENDENT_ROUNDS):
            if not DEPENDENT_RULES.apply(reference):
                break
        RANGE_RULES.apply(reference)
    spans = []
    for match in _RESOLVED_TAG.finditer(tagged_text.tags):
        value, start, end = tagged_text.items[match.start()]
        resolved = reference.resolve(value, start)
        if resolved is not None:
            begins, ends = max(resolved[0], _EARLIEST), min(resolved[1], _LATEST)
            if begins < ends:
                spans.append(TimeSpan(begins, ends, resolved[2], text[start:end]))
    return tuple(spans)
