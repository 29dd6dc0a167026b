"""Names compared as people do: case, accents and spacing do not matter."""

from __future__ import annotations

import functools
import re
import unicodedata

from tellback.types.caches import forgets

LONGEST = 100
SLUG_LENGTH = 40
_OTHER = re.compile(r"[\W_]+")
_ACCENTS = re.compile("([a-z\u00df-\u024f\u0370-\u03ff])[\u0300-\u036f]+")
"""Marks that a reader may leave out: those of Latin and Greek letters. Elsewhere they make another letter."""


def folded(name: str) -> str:
    """A name as it is compared.

    >>> folded("  José   MARÍA ") == folded("jose maria")
    True
    """
    # Names come again and again; questions, which are folded too, are long, and are not to be kept.
    return _kept(name) if len(name) <= LONGEST else _folded(name)


def slug(text: str) -> str:
    """A text as part of an id: lower case, words joined by `_`; other alphabets are kept.

    >>> slug("User Onboarding!")
    'user_onboarding'
    """
    return _OTHER.sub("_", folded(text)).strip("_")[:SLUG_LENGTH].strip("_")


def _folded(name: str) -> str:
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    kept = _ACCENTS.sub(r"\1", plain)
    return " ".join(kept.casefold().split())


_kept = functools.lru_cache(maxsize=16_384)(_folded)
forgets(_kept.cache_clear)
