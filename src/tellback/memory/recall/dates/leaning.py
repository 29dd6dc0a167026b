"""The later rounds: what leans on a time ("the Friday before …", "the end of …"), then ranges ("since …")."""

from __future__ import annotations

from collections.abc import Sequence

from tellback.memory.recall.dates.civil import DAY, SATURDAY, civil_date, day_number, period, weekday
from tellback.memory.recall.dates.lexer import TaggedItem
from tellback.memory.recall.dates.moment import (
    BareWeekday,
    ReferenceTime,
    ResolvedSpan,
    TimeExpression,
    nearby_weekend,
    shift_by_units,
    span_in_day,
    span_part,
    to_span,
    unit_precision,
)
from tellback.memory.recall.dates.rules import COUNT, RuleResult, RuleSet, find_tags, find_value, parse_count
from tellback.memory.recall.dates.values import Precision
from tellback.memory.recall.dates.yearly import AnnualPeriod

_FAR_AWAY = (200 * 365 + 48) * DAY


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


_UNIT_STEPS: dict[str, tuple[int, int, Precision]] = {
    "day": (1, 1, "day"),
    "weekday": (7, 1, "day"),
    "weekend": (7, 2, "weekend"),
    "week": (7, 7, "week"),
}


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
