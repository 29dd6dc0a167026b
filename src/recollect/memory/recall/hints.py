"""What a question asks for, and which texts look like an answer to it.

English only for now. Another language is another `Language` in `LANGUAGES`; a question that is none of them asks for
nothing in particular, and its ranking rests on words, meaning and neighbours alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

QUESTION = 4
NAMED = 8
PLACE = 16


@dataclass(frozen=True, slots=True)
class Asks:
    """What a question wants to know."""

    when: bool = False
    where: bool = False
    who: bool = False
    count: bool = False
    both: bool = False


@dataclass(frozen=True, slots=True)
class Language:
    """How one language asks.

    `when` to `who` find the question, `both` says that it is about all of the people it names, `place` finds a text that
    tells of a place, and `framing` are words which make the question but are not what it is about.
    """

    when: re.Pattern[str]
    where: re.Pattern[str]
    count: re.Pattern[str]
    who: re.Pattern[str]
    both: re.Pattern[str]
    place: re.Pattern[str]
    framing: frozenset[str]


ENGLISH = Language(
    when=re.compile(r"\b(?:when|what (?:date|day|month|year|time)|how long ago|which (?:day|month|year|date))\b", re.I),
    where=re.compile(
        r"\b(?:where|(?:what|which) (?:\w+ ){0,2}(?:cit(?:y|ies)|countr(?:y|ies)|places?|towns?|states?|areas?|locations?))\b",
        re.I,
    ),
    count=re.compile(r"\bhow (?:many|much|long|often|old|far)\b", re.I),
    who=re.compile(
        r"\b(?:who|whom|whose|which|names?|named|called|titles?|(?:what|which) (?:book|movie|song|band|game)s?)\b", re.I
    ),
    both=re.compile(r"\b(?:and|both|together|common|share[ds]?|each other)\b|&", re.I),
    place=re.compile(
        r"\b(?:in|at|to|from|near|around|visit(?:ed|ing)?) (?:the |a |my |our )?[A-Z]|\b(?:home|park|beach|city|country|town|studio|gym|cafe|restaurant|lake|mountains?|street|museum|school|church)\b"
    ),
    framing=frozenset(
        ["kind", "type", "sort", "mention", "recent", "like", "would", "likely", "consider", "happen", "way", "thing", "name", "many", "long"]
    ),
)
LANGUAGES = {"en": ENGLISH}

_NAMED = re.compile(r"(?<=[a-z,;:'\"] )[\"']?[A-Z][a-z]|\"[A-Z]")
_ENGLISH = re.compile(
    r"\b(?:what|when|where|who|whom|whose|which|why|how|did|does|do|is|are|was|were|has|have|had|can|could|would|the|of)\b",
    re.I,
)


def language_of(question: str) -> Language | None:
    """The language whose hints hold for a question."""
    return ENGLISH if _ENGLISH.search(question) else None


def read_question(question: str) -> Asks:
    """What a question wants to know.

    >>> read_question("Where did she buy it?").where
    True
    """
    language = language_of(question)
    if language is None:
        return Asks()
    return Asks(
        when=language.when.search(question) is not None,
        where=language.where.search(question) is not None,
        who=language.who.search(question) is not None,
        count=language.count.search(question) is not None,
        both=language.both.search(question) is not None,
    )


def text_signs(text: str) -> int:
    """What a text is a sign of: that it asks, that it names something, that it tells of a place."""
    signs = 0
    if "?" in text[-40:]:
        signs |= QUESTION
    if _NAMED.search(text):
        signs |= NAMED
    if ENGLISH.place.search(text):
        signs |= PLACE
    return signs
