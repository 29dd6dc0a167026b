"""A text to its spans: three rounds of rules, each of which leaves fewer and larger pieces."""

from __future__ import annotations

import re

from tellback.memory.recall.dates.languages import Language
from tellback.memory.recall.dates.leaning import LEANING, RANGES
from tellback.memory.recall.dates.lexer import tagged
from tellback.memory.recall.dates.moment import FIRST, LAST, Moment
from tellback.memory.recall.dates.points import POINTS
from tellback.memory.recall.dates.values import Span

# "The day after the Friday before the end of May" leans three times.
_LEANS = 4
_UNDERSTOOD = re.compile("[AJ]")


def spans_of(text: str, language: Language, now: int) -> tuple[Span, ...]:
    """What the time expressions of a text mean, in the order they stand in it."""
    words = tagged(text, language)
    moment = Moment(words, now)
    POINTS.apply(moment)
    if "A" not in words.tags and "J" not in words.tags:
        return ()
    if len(words.tags) > 1:
        for _ in range(_LEANS):
            if not LEANING.apply(moment):
                break
        RANGES.apply(moment)
    found = []
    for piece in _UNDERSTOOD.finditer(words.tags):
        value, start, end = words.items[piece.start()]
        stretch = moment.resolve(value, start)
        if stretch is not None:
            begins, ends = max(stretch[0], FIRST), min(stretch[1], LAST)
            if begins < ends:
                found.append(Span(begins, ends, stretch[2], text[start:end]))
    return tuple(found)
