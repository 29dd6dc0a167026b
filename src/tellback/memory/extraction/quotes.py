"""Whether words were said, whatever became of case, punctuation and spacing."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

MIN_QUOTED_WORDS = 2
"""Fewer words prove nothing, unless they are all that was said."""

_ELLIPSIS = re.compile(r"\[?(?:…|\.\.\.)\]?")
# Thai, Lao, Burmese, Khmer, Japanese and Chinese do not part their words: each character may begin or end one.
_UNSPACED_SCRIPTS = re.compile(
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
    pieces = [piece for piece in map(_normalize, _ELLIPSIS.split(quote)) if piece.letters]
    if not pieces:  # a thumb up may be all that was said
        return _has_symbol(quote) and any(quote.strip() in text for text in texts)
    is_long_enough = any(piece.word_count >= MIN_QUOTED_WORDS for piece in pieces)
    whole = _normalize(quote).letters
    return any(text.letters == whole or (is_long_enough and text.contains(pieces)) for text in map(_normalize, texts))


@dataclass(frozen=True, slots=True)
class _NormalizedText:
    """The letters and digits of a text with their marks and nothing else, and where words begin or end in them."""

    letters: str
    edges: frozenset[int]

    @property
    def word_count(self) -> int:
        return len(self.edges) - 1

    def contains(self, pieces: list[_NormalizedText]) -> bool:
        position = 0
        for piece in pieces:
            found = self._find(piece.letters, position)
            if found < 0:
                return False
            position = found + len(piece.letters)
        return True

    def _find(self, letters: str, position: int) -> int:
        found = self.letters.find(letters, position)
        while found >= 0 and not {found, found + len(letters)} <= self.edges:
            found = self.letters.find(letters, found + 1)
        return found


def _normalize(text: str) -> _NormalizedText:
    folded_text = unicodedata.normalize("NFKC", text).casefold()
    letters: list[str] = []
    edges = {0}
    for position, char in enumerate(folded_text):
        if unicodedata.category(char)[0] in "LNM":
            letters.append(char)
            if _UNSPACED_SCRIPTS.match(char):
                edges |= {len(letters) - 1, len(letters)}
        elif not _is_inner_apostrophe(folded_text, position):
            edges.add(len(letters))
    edges.add(len(letters))
    return _NormalizedText("".join(letters), frozenset(edges))


def _is_inner_apostrophe(text: str, position: int) -> bool:
    """Whether a character is an apostrophe in the middle of a word."""
    around = text[position - 1 : position] + text[position + 1 : position + 2]
    return text[position] in _APOSTROPHES and len(around) == 2 and around.isalpha()


def _has_symbol(text: str) -> bool:
    return any(unicodedata.category(char) == "So" for char in text)
