"""When something happens again, in words: on Mondays, daily, on day 1 of the month.

Parts of the day are not told: the hour that is known of an episode is mostly when someone spoke of it, and in UTC.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from datetime import date
from itertools import pairwise

from tellback.memory.recall.dates import parse_time_spans
from tellback.memory.recall.words import extract_words

MIN_REGULAR_SHARE = 0.8
"""A rule that has more exceptions than this leaves is none."""

WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
PATTERN_PREFIX = "Recurs"

_PREPOSITION = r"(?:,?\s*\b(?:on|in|at|during|am|im|den|el|en|le|vom)\s+)?"
_EVERY = re.compile(r"(?:every|each|jeden|jede|cada|chaque)\s*$", re.IGNORECASE)
_LOOSE_PUNCTUATION = re.compile(r"\s+(?=[.,;:!?])|^[\s,;:.]+|[\s,;:]+(?=\.?$)")


def describe_regularity(days: Collection[date], *, at_least: int) -> str:
    """How the days on which something happened go on, as far as that is plain; otherwise nothing.

    >>> from datetime import date, timedelta
    >>> describe_regularity([date(2026, 3, 2) + timedelta(weeks=n) for n in range(3)], at_least=3)
    'on Mondays'
    """
    in_order = sorted(set(days))
    needed = max(at_least, MIN_REGULAR_SHARE * len(in_order))
    if len(in_order) < at_least:
        return ""
    gaps = [(after - before).days for before, after in pairwise(in_order)]
    if len(gaps) > at_least and gaps.count(1) >= MIN_REGULAR_SHARE * len(gaps):
        return "daily"
    [(day, months)] = Counter(each.day for each in in_order).most_common(1)
    if months >= needed:
        return f"on day {day} of the month"
    [(weekday, times)] = Counter(each.weekday() for each in in_order).most_common(1)
    if times >= needed:
        return f"on {WEEKDAYS[weekday]}"
    weekend = sum(each.weekday() >= 5 for each in in_order)
    return "on weekends" if weekend >= needed and len(in_order) > at_least else ""


def pattern_text(when: str, sentence: str) -> str:
    """What a pattern says.

    >>> pattern_text("on Mondays", "User went running."), pattern_text("", "User went running.")
    ('Recurs on Mondays: User went running.', 'Recurs: User went running.')
    """
    return f"{PATTERN_PREFIX} {when}: {sentence}" if when else f"{PATTERN_PREFIX}: {sentence}"


def pattern_sentence(text: str) -> str:
    """The sentence that a pattern's text is about.

    >>> pattern_sentence("Recurs on Mondays: User said: hello.")
    'User said: hello.'
    """
    return text.partition(": ")[2] if text.startswith(PATTERN_PREFIX) else text


def remove_dates(text: str, said_us: int) -> str:
    """A sentence without the dates in it, if it says something without them.

    >>> remove_dates("User went running in the park on Monday, 2 March 2026.", 0)
    'User went running in the park.'
    """
    remaining = text
    for span in parse_time_spans(text, said_us):
        found = (
            re.search(_PREPOSITION + re.escape(span.text), remaining, re.IGNORECASE)
            if span.precision != "hour"
            else None
        )
        if found is not None and not _EVERY.search(remaining[: found.start()]):
            remaining = remaining[: found.start()] + remaining[found.end() :]
    remaining = _LOOSE_PUNCTUATION.sub("", " ".join(remaining.split()))
    return remaining[:1].upper() + remaining[1:] if remaining != text and len(extract_words(remaining)) > 1 else text
