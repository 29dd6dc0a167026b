"""Parse time expressions: what "last Friday", "in May" or "8 May 2023" mean, relative to a reference time.

All times are UTC, weeks start on Monday, and seasons are those of the northern hemisphere, by whole months. `lexer`
tags each word with the tables of `vocabulary`, and the rules of `grammar`, which are regular expressions over the
tags, turn the tags into time spans. Parsing takes microseconds and never raises.

How ambiguous expressions are resolved:

- 05/08/2023 is May 8, and 25/08/2023 can only be 25 August. In German and Spanish texts, and in 8.5.2023, the day
  comes first.
- A month, date, season or holiday without a year is the latest that has begun, or, in a sentence about the future
  ("will", "going to", "plan", "next"), the first that has not ended. "Last May" is the latest May that has ended.
- A weekday is the latest one before the reference day, or the first one after it in a sentence about the future.
- "Two weeks ago" is a whole week, "three months ago" a whole month; "a few" is two to five.
- "Last week" is the previous week from Monday to Sunday, "the past week" the seven days before today, and today.
- "The week before 8 May" is the week before the one that contains 8 May.
- Early, mid and late are thirds; in a month the days 1 to 10, 11 to 20 and the rest.
- Winter 2022 begins in December 2022.
- Before, after, since and until extend to the reference time, or 200 years away.
- Mornings are from 6 to 12 o'clock, afternoons from 12 to 18, evenings and nights from 18 to 24."""

from __future__ import annotations

import re

from tellback.memory.recall.dates.calendar import TimeSpan
from tellback.memory.recall.dates.grammar import find_spans
from tellback.memory.recall.dates.vocabulary import LANGUAGES, Language

# Faster than `\w`, and includes all letters of the tables.
_WORD = re.compile(r"[a-z0-9\u00df-\u024f]+")
_TRIGGERS = frozenset[str]().union(*(one.triggers for one in LANGUAGES.values()))
_DIGIT = re.compile(r"[0-9]")
_DATE_DIGITS = re.compile(r"(?:19|20)[0-9][0-9]|[0-9](?:0s|st|nd|rd|th)\b|[0-9][/.-][0-9]{1,2}[/.-][0-9]")


def detect_language(lowered: str) -> Language | None:
    """Return the language of a lowercase text, or None if it has no word of a time expression."""
    words = _WORD.findall(lowered)
    if _TRIGGERS.isdisjoint(words):
        return LANGUAGES["en"] if _DIGIT.search(lowered) and _DATE_DIGITS.search(lowered) else None
    known = [one for one in LANGUAGES.values() if not one.triggers.isdisjoint(words)]
    if len(known) == 1:
        return known[0]
    distinct = set(words)
    return max(known, key=lambda one: len(distinct & one.words.keys()))


def parse_time_spans(text: str, reference_us: int) -> tuple[TimeSpan, ...]:
    """Parse the time expressions of a text, in order, relative to the time when the text was written.

    >>> from tellback.types.ids import as_utc, from_micros, to_micros
    >>> [span] = parse_time_spans("When did I go swimming last May?", to_micros(as_utc("2024-02-10T12:00:00Z")))
    >>> str(from_micros(span.start).date()), span.text
    ('2023-05-01', 'last May')
    """
    language = detect_language(text.lower())
    return () if language is None else find_spans(text, language, reference_us)
