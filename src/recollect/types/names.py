"""Names compared as people do: case, accents and spacing do not matter."""

from __future__ import annotations

import functools
import unicodedata


@functools.lru_cache(maxsize=65_536)
def folded(name: str) -> str:
    """A name as it is compared.

    >>> folded("  José   MARÍA ") == folded("jose maria")
    True
    """
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    kept = "".join(char for char in plain if not unicodedata.combining(char))
    return " ".join(kept.casefold().split())
