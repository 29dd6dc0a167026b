"""What a question asks for, and which texts look like an answer to it.

English only for now. Another language is another `Language` in `LANGUAGES`; a question that is none of them asks for
nothing in particular, and its ranking rests on words, meaning and neighbours alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tellback.memory.recall.words import PLACE

QUESTION = 4
NAMED = 8
ANSWER = 32
OPENING = 64
ADDRESS = 128
"""Signs of a text, beside those of its words: it asks, it names something, it follows a question, it opens a session,
it speaks to somebody."""


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

    `spoken` tells that a question is in it, `when` to `who` find what it asks, `both` that it is about all of the
    people it names. `places` are words that stand before the name of a place, with one of the `articles` between them
    or not, and `address` is in texts that speak to somebody.
    """

    spoken: re.Pattern[str]
    when: re.Pattern[str]
    where: re.Pattern[str]
    count: re.Pattern[str]
    who: re.Pattern[str]
    both: re.Pattern[str]
    places: frozenset[str]
    articles: frozenset[str]
    address: tuple[str, ...]


ENGLISH = Language(
    spoken=re.compile(
        r"\b(?:what|when|where|who|whom|whose|which|why|how|did|does|do|is|are|was|were|has|have|had|can|could|would|the|of)\b",
        re.I,
    ),
    when=re.compile(r"\b(?:when|what (?:date|day|month|year|time)|how long ago|which (?:day|month|year|date))\b", re.I),
    where=re.compile(
        r"\b(?:where|(?:what|which) (?:\w+ ){0,2}"
        r"(?:cit(?:y|ies)|countr(?:y|ies)|places?|towns?|states?|areas?|locations?))\b",
        re.I,
    ),
    count=re.compile(r"\bhow (?:many|much|long|often|old|far)\b", re.I),
    who=re.compile(
        r"\b(?:who|whom|whose|which|names?|named|called|titles?|(?:what|which) (?:book|movie|song|band|game)s?)\b", re.I
    ),
    both=re.compile(r"\b(?:and|both|together|common|share[ds]?|each other)\b|&", re.I),
    places=frozenset(("in", "at", "to", "from", "near", "around", "visit", "visited", "visiting", "of")),
    articles=frozenset(("the", "a", "my", "our")),
    address=(" you", "You"),
)
LANGUAGES = {"en": ENGLISH}
_ADDRESS = tuple(address for language in LANGUAGES.values() for address in language.address)


def _any_of(words: Iterable[frozenset[str]]) -> str:
    return "|".join(sorted(frozenset().union(*words)))


_CAPITAL = r" [\"'\u201c]?[A-Z\u00c0-\u00de][a-z\u00df-\u00ff]"
_NAMED = re.compile(rf"(?<=[^.!?\u2026*)\-\u2014: ]){_CAPITAL}")
"""A capital inside a sentence."""
_OF_PLACE = re.compile(
    rf"(?<![^ ])(?:{_any_of(language.places for language in LANGUAGES.values())})"
    rf"(?: (?:{_any_of(language.articles for language in LANGUAGES.values())}))?{_CAPITAL}"
)


def language_of(question: str) -> Language | None:
    """The language whose hints hold for a question."""
    return next((language for language in LANGUAGES.values() if language.spoken.search(question)), None)


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
    """What a text is a sign of: that it asks, that it names something or a place, that it speaks to somebody."""
    signs = QUESTION if "?" in text[-40:] else 0
    for address in _ADDRESS:
        if address in text:
            signs |= ADDRESS
    if _NAMED.search(text) is not None:
        signs |= NAMED
        if _OF_PLACE.search(text) is not None:
            signs |= PLACE
    return signs
