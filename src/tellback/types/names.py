"""Names compared as people do: case, accents and spacing do not matter."""

from __future__ import annotations

import functools
import re
import unicodedata

from tellback.types.caches import register_cache

MAX_CACHED_LENGTH = 100
SLUG_LENGTH = 40
_NON_WORD = re.compile(r"[\W_]+")
_ACCENTS = re.compile("([a-z\u00df-\u024f\u0370-\u03ff])[\u0300-\u036f]+")
"""Marks that a reader may leave out: those of Latin and Greek letters. Elsewhere they make another letter."""


def fold_name(name: str) -> str:
    """A name as it is compared.

    >>> fold_name("  José   MARÍA ") == fold_name("jose maria")
    True
    """
    # Names come again and again; questions, which are folded too, are long, and are not to be kept.
    return _fold_cached(name) if len(name) <= MAX_CACHED_LENGTH else _fold(name)


def slug(text: str) -> str:
    """A text as part of an id: lower case, words joined by `_`; other alphabets are kept.

    >>> slug("User Onboarding!")
    'user_onboarding'
    """
    return _NON_WORD.sub("_", fold_name(text)).strip("_")[:SLUG_LENGTH].strip("_")


def _fold(name: str) -> str:
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    without_accents = _ACCENTS.sub(r"\1", decomposed)
    return " ".join(without_accents.casefold().split())


_fold_cached = functools.lru_cache(maxsize=16_384)(_fold)
register_cache(_fold_cached.cache_clear)
