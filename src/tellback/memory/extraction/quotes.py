"""Whether words were said, whatever became of case, punctuation and spacing."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

LEAST_WORDS = 2
"""Fewer words prove nothing, unless they are all that was said."""

_ELLIPSIS = re.compile(r"\[?(?:…|\.\.\.)\]?")
# Thai, Lao, Burmese, Khmer, Japanese and Chinese do not part their words: each character may begin or end one.
_UNPARTED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_APOSTROPHES = frozenset("'\u2019\u02bc`\u00b4")


def is_quoted(quote: str, *texts: str) -> bool:
    """Whether a quote is in one of the texts: whole words, two of them in a row or all that was said.

    A quote with gaps has its pieces there in their order.

    >>> is_quoted("i MOVED … to lisbon", "Well, I moved back to Lisbon!")
    True
    >>> is_quoted("I moved to Porto", "I moved to Lisbon."), is_quoted("I", "I moved to Lisbon.")
    (False, False)
    """
    pieces = [piece for piece in map(_read, _ELLIPSIS.split(quote)) if piece.letters]
    if not pieces:  # a thumb up may be all that was said
        return _has_symbol(quote) and any(quote.strip() in text for text in texts)
    says_enough = any(piece.words >= LEAST_WORDS for piece in pieces)
    whole = _read(quote).letters
    return any(said.letters == whole or (says_enough and said.holds(pieces)) for said in map(_read, texts))


@dataclass(frozen=True, slots=True)
class _Said:
    """The letters and digits of a text with their marks and nothing else, and where words begin or end in them."""

    letters: str
    edges: frozenset[int]

    @property
    def words(self) -> int:
        return len(self.edges) - 1

    def holds(self, pieces: list[_Said]) -> bool:
        place = 0
        for piece in pieces:
            found = self._find(piece.letters, place)
            if found < 0:
                return False
            place = found + len(piece.letters)
        return True

    def _find(self, letters: str, place: int) -> int:
        found = self.letters.find(letters, place)
        while found >= 0 and not {found, found + len(letters)} <= self.edges:
            found = self.letters.find(letters, found + 1)
        return found


def _read(text: str) -> _Said:
    plain = unicodedata.normalize("NFKC", text).casefold()
    letters: list[str] = []
    edges = {0}
    for place, char in enumerate(plain):
        if unicodedata.category(char)[0] in "LNM":
            letters.append(char)
            if _UNPARTED.match(char):
                edges |= {len(letters) - 1, len(letters)}
        elif not _is_within(plain, place):
            edges.add(len(letters))
    edges.add(len(letters))
    return _Said("".join(letters), frozenset(edges))


def _is_within(plain: str, place: int) -> bool:
    """Whether a character is an apostrophe in the middle of a word."""
    around = plain[place - 1 : place] + plain[place + 1 : place + 2]
    return plain[place] in _APOSTROPHES and len(around) == 2 and around.isalpha()


def _has_symbol(text: str) -> bool:
    return any(unicodedata.category(char) == "So" for char in text)
