"""Whether words were said, whatever became of case, punctuation and spacing."""

from __future__ import annotations

import re
import unicodedata

_ELLIPSIS = re.compile(r"\[?(?:…|\.\.\.)\]?")


def is_quoted(quote: str, *texts: str) -> bool:
    """Whether a quote is in one of the texts; a quote with gaps has its pieces there in their order.

    >>> is_quoted("i MOVED … to lisbon", "Well, I moved back to Lisbon!")
    True
    >>> is_quoted("I moved to Porto", "I moved to Lisbon.")
    False
    """
    pieces = [piece for piece in map(_letters, _ELLIPSIS.split(quote)) if piece]
    if not pieces:  # a thumb up may be all that was said
        return bool(quote.strip()) and any(quote.strip() in text for text in texts)
    return any(_holds(_letters(text), pieces) for text in texts)


def _holds(letters: str, pieces: list[str]) -> bool:
    place = 0
    for piece in pieces:
        found = letters.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return True


def _letters(text: str) -> str:
    """Letters and digits with their marks, and nothing else."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in plain if unicodedata.category(char)[0] in "LNM")
