"""Compare two texts by their words. This works in any language; negations are recognized in a few."""

from __future__ import annotations

import re
import unicodedata

from tellback.memory.recall import tokenizer
from tellback.memory.recall.tokenizer import extract_all_words, extract_words, tokenize
from tellback.types.ids import fold_name

_APOSTROPHES = re.compile("['\u2019\u02bc`\u00b4]")
_BELOW_ZERO = re.compile(r"(?<![^\s(])[-\u2212](?=\d)")
_SIGNIFICANT_SYMBOLS = frozenset("#%&@")
"""Punctuation that changes the meaning of a word: C# is not C."""

_ARTICLES = frozenset({"a", "an", "the"})
_USER_STEM = "user"
_NEGATION_LIST = """
    not no never none nobody nothing cannot without longer stopped quit nor neither nicht kein keine keinen keinem
    keiner nie niemals ohne nunca jamas sin tampoco ne pas jamais sans nao nem
"""
_NEGATIONS = frozenset(_NEGATION_LIST.split())


def text_key(text: str) -> str:
    """Return the form of a text that `same_words` compares.

    >>> text_key("  User's café: CLOSED!")
    'users cafe closed'
    """
    normalized = _BELOW_ZERO.sub("\u2212", _APOSTROPHES.sub("", fold_name(text)))
    return " ".join("".join(char if _is_significant(char) else " " for char in normalized).split()) or normalized


def _is_significant(char: str) -> bool:
    return char.isalnum() or char in _SIGNIFICANT_SYMBOLS or unicodedata.category(char)[0] in "MS"


def same_words(a: str, b: str) -> bool:
    """Whether two texts are equal except for case, accents, punctuation and spacing.

    >>> same_words("User lives in São Paulo.", "user lives in Sao  Paulo")
    True
    >>> same_words("User likes tea", "User does not like tea")
    False
    """
    return text_key(a) == text_key(b)


def value_key(value: str) -> str:
    """Return the form of a slot's value that `same_value` compares."""
    parts = [tokenizer.NUMBER_WORDS.get(part, part) for part in text_key(value).split() if part not in _ARTICLES]
    return " ".join(parts) or text_key(value)


def same_value(a: str, b: str) -> bool:
    """Whether two values of a slot are equal. The comparison is strict, because a similar value may be a change.

    >>> same_value("two cats", "2 Cats"), same_value("York", "New York")
    (True, False)
    """
    return value_key(a) == value_key(b)


def stems(text: str) -> frozenset[str]:
    """Return the stems of a text without stopwords and "user"; all its words if nothing is left."""
    found = frozenset(word.term for word in extract_words(text)) - {_USER_STEM}
    return found or frozenset(word.term for word in extract_all_words(text)) or frozenset(text_key(text).split())


def overlap(a: str, b: str) -> float:
    """Return the share of stems that two texts have in common, from 0 to 1.

    Negations do not count: "likes tea" and "does not like tea" overlap completely, because they are about the same
    thing.

    >>> overlap("User works as a nurse in Porto", "User worked in Porto")
    0.6666666666666666
    """
    ours, theirs = stems(a), stems(b)
    return len(ours & theirs) / len(ours | theirs) if ours and theirs else 0.0


def negates(text: str) -> bool:
    """Whether a text contains a negation, in one of the supported languages."""
    pieces = tokenize(text if text.isascii() else fold_name(text))
    return any(piece in _NEGATIONS or piece.endswith(("n't", "n\u2019t")) for piece in pieces)


def denies(text: str, value: str) -> bool:
    """Whether a text denies a value: it has a negation before the value.

    >>> denies("User no longer works at Acme", "Acme"), denies("User lives in Rome, not in Oslo", "Rome")
    (True, False)
    """
    before, found, _ = fold_name(text).partition(fold_name(value))
    return bool(found) and negates(before) and not negates(value)


def slot_name(subject: str | None, attribute: str | None) -> str | None:
    """Return the stored name of a slot, from its subject and attribute; None if one of them is missing.

    >>> slot_name(" The User", "Home city")
    'user: home city'
    """
    about, what = (text_key(part).replace(":", " ") if part else "" for part in (subject, attribute))
    about = about.removeprefix("the ")
    return f"{about}: {what}" if about and what else None
