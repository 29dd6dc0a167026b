"""When something happens again, in words: on Mondays, daily, on day 1 of the month.

Parts of the day are not told: the hour that is known of an episode is mostly when someone spoke of it, and in UTC.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from datetime import date
from itertools import pairwise

from tellback.memory.recall.dates import read_text
from tellback.memory.recall.words import words

MOSTLY = 0.8
"""A rule that has more exceptions than this leaves is none."""

WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")
RECURS = "Recurs"

_PREPOSITION = r"(?:,?\s*\b(?:on|in|at|during|am|im|den|el|en|le|vom)\s+)?"
_EVERY = re.compile(r"(?:every|each|jeden|jede|cada|chaque)\s*$", re.IGNORECASE)
_LOOSE = re.compile(r"\s+(?=[.,;:!?])|^[\s,;:.]+|[\s,;:]+(?=\.?$)")


def regularity(days: Collection[date], *, at_least: int) -> str:
    """How the days on which something happened go on, as far as that is plain; otherwise nothing.

    >>> from datetime import date, timedelta
    >>> regularity([date(2026, 3, 2) + timedelta(weeks=n) for n in range(3)], at_least=3)
    'on Mondays'
    """
    in_order = sorted(set(days))
    many = max(at_least, MOSTLY * len(in_order))
    if len(in_order) < at_least:
        return ""
    gaps = [(after - before).days for before, after in pairwise(in_order)]
    if len(gaps) > at_least and gaps.count(1) >= MOSTLY * len(gaps):
        return "daily"
    [(day, months)] = Counter(each.day for each in in_order).most_common(1)
    if months >= many:
        return f"on day {day} of the month"
    [(weekday, times)] = Counter(each.weekday() for each in in_order).most_common(1)
    if times >= many:
        return f"on {WEEKDAYS[weekday]}"
    weekend = sum(each.weekday() >= 5 for each in in_order)
    return "on weekends" if weekend >= many and len(in_order) > at_least else ""


def pattern_text(when: str, sentence: str) -> str:
    """What a pattern says.

    >>> pattern_text("on Mondays", "User went running."), pattern_text("", "User went running.")
    ('Recurs on Mondays: User went running.', 'Recurs: User went running.')
    """
    return f"{RECURS} {when}: {sentence}" if when else f"{RECURS}: {sentence}"


def sentence_of(text: str) -> str:
    """The sentence that a pattern's text is about.

    >>> sentence_of("Recurs on Mondays: User said: hello.")
    'User said: hello.'
    """
    return text.partition(": ")[2] if text.startswith(RECURS) else text


def undated(text: str, said_us: int) -> str:
    """A sentence without the dates in it, if it says something without them.

    >>> undated("User went running in the park on Monday, 2 March 2026.", 0)
    'User went running in the park.'
    """
    kept = text
    for span in read_text(text, said_us):
        found = (
            re.search(_PREPOSITION + re.escape(span.text), kept, re.IGNORECASE) if span.precision != "hour" else None
        )
        if found is not None and not _EVERY.search(kept[: found.start()]):
            kept = kept[: found.start()] + kept[found.end() :]
    kept = _LOOSE.sub("", " ".join(kept.split()))
    return kept[:1].upper() + kept[1:] if kept != text and len(words(kept)) > 1 else text
