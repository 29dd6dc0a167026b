"""A text to its spans: three rounds of rules, each of which leaves fewer and larger pieces."""

from __future__ import annotations

import re

from tellback.memory.recall.dates.languages import Language
from tellback.memory.recall.dates.leaning import DEPENDENT_RULES, RANGE_RULES
from tellback.memory.recall.dates.lexer import tag_text
from tellback.memory.recall.dates.moment import EARLIEST, LATEST, ReferenceTime
from tellback.memory.recall.dates.points import STANDALONE_RULES
from tellback.memory.recall.dates.values import TimeSpan

# "The day after the Friday before the end of May" leans three times.
_MAX_DEPENDENT_ROUNDS = 4
_RESOLVED_TAG = re.compile("[AJ]")


def find_spans(text: str, language: Language, reference_us: int) -> tuple[TimeSpan, ...]:
    """What the time expressions of a text mean, in the order they stand in it."""
    tagged_text = tag_text(text, language)
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
            begins, ends = max(resolved[0], EARLIEST), min(resolved[1], LATEST)
            if begins < ends:
                spans.append(TimeSpan(begins, ends, resolved[2], text[start:end]))
    return tuple(spans)
