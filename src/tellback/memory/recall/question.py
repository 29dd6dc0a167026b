"""Detect what a question asks for, and which texts look like an answer to it.

English only for now. Another language is another `QuestionLanguage` in `QUESTION_LANGUAGES`; a question in none of them
has no intent, and its ranking rests on words, vectors and neighbours alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tellback.memory.recall.tokenizer import HAS_PLACE

IS_QUESTION = 4
HAS_NAME = 8
FOLLOWS_QUESTION = 32
OPENS_SESSION = 64
ADDRESSES_SOMEONE = 128
"""Signs of a text, beside those of its words: it asks, it names something, it follows a question, it opens a session,
it speaks to somebody."""

_CAPITALIZED = r" [\"'\u201c]?[A-Z\u00c0-\u00de][a-z\u00df-\u00ff]"
_NAME_IN_SENTENCE = re.compile(rf"(?<=[^.!?\u2026*)\-\u2014: ]){_CAPITALIZED}")
"""A capital inside a sentence."""


@dataclass(frozen=True, slots=True)
class QuestionIntent:
    """What a question wants to know."""

    when: bool = False
    where: bool = False
    who: bool = False
    count: bool = False
    both: bool = False


@dataclass(frozen=True, slots=True)
class QuestionLanguage:
    """How one language asks.

    `detect` tells that a question is in it, `when` to `who` find what it asks, `both` that it is about all of the
    people it names. `place_prepositions` are words that stand before the name of a place, with one of the
    `articles` between them or not, and `address_words` are in texts that speak to somebody.
    """

    detect: re.Pattern[str]
    when: re.Pattern[str]
    where: re.Pattern[str]
    count: re.Pattern[str]
    who: re.Pattern[str]
    both: re.Pattern[str]
    place_prepositions: frozenset[str]
    articles: frozenset[str]
    address_words: tuple[str, ...]


ENGLISH_QUESTIONS = QuestionLanguage(
    detect=re.compile(
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
    place_prepositions=frozenset(("in", "at", "to", "from", "near", "around", "visit", "visited", "visiting", "of")),
    articles=frozenset(("the", "a", "my", "our")),
    address_words=(" you", "You"),
)
QUESTION_LANGUAGES = {"en": ENGLISH_QUESTIONS}
_ADDRESS_WORDS = tuple(address for language in QUESTION_LANGUAGES.values() for address in language.address_words)


def _alternatives(words: Iterable[frozenset[str]]) -> str:
    return "|".join(sorted(frozenset().union(*words)))


_PLACE_NAME = re.compile(
    rf"(?<![^ ])(?:{_alternatives(language.place_prepositions for language in QUESTION_LANGUAGES.values())})"
    rf"(?: (?:{_alternatives(language.articles for language in QUESTION_LANGUAGES.values())}))?{_CAPITALIZED}"
)


def detect_question_language(question: str) -> QuestionLanguage | None:
    """The language whose hints hold for a question."""
    return next((language for language in QUESTION_LANGUAGES.values() if language.detect.search(question)), None)


def parse_question(question: str) -> QuestionIntent:
    """What a question wants to know.

    >>> parse_question("Where did she buy it?").where
    True
    """
    language = detect_question_language(question)
    if language is None:
        return QuestionIntent()
    patterns = (language.when, language.where, language.who, language.count, language.both)
    return QuestionIntent(*(pattern.search(question) is not None for pattern in patterns))


def detect_features(text: str) -> int:
    """What a text is a sign of: that it asks, that it names something or a place, that it speaks to somebody."""
    features = IS_QUESTION if "?" in text[-40:] else 0
    for address in _ADDRESS_WORDS:
        if address in text:
            features |= ADDRESSES_SOMEONE
    if _NAME_IN_SENTENCE.search(text) is not None:
        features |= HAS_NAME
        if _PLACE_NAME.search(text) is not None:
            features |= HAS_PLACE
    return features
