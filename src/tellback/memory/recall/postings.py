"""Which rows have which words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tellback.memory.recall.grown import Floats, Ints
from tellback.memory.recall.words import Word, words_of

NOTHING = -1
SEVERAL = -2
"""What stands for a token's term if it has none, or more than one."""


class _Tokens(dict[str, int]):
    """The tokens of a space, numbered; a new one is read when it is first met."""

    def __init__(self, postings: Postings) -> None:
        super().__init__()
        self._postings = postings

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        self._postings.learn(number, words_of(token))
        return number


class Postings:
    """The rows of each term, term after term in one array, with how often the term is in them.

    Texts come as tokens. What a token stands for is found out once, and the rest is done with numbers, many rows at a
    time. New rows wait until `settle` puts them in their places: a copy of the array, not a sort of it.
    """

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}
        self.forms: list[str] = []
        self.rows: Ints = np.zeros(0, np.int64)
        self.counts: Floats = np.zeros(0, np.float32)
        self.starts: Ints = np.zeros(1, np.int64)
        self.spread: Ints = np.zeros(0, np.int64)
        self.tokens = _Tokens(self)
        self._term_of: list[int] = []
        self._signs_of: list[int] = []
        self._several: dict[int, list[int]] = {}
        self._waiting: list[tuple[Ints, Ints, Ints]] = []

    def learn(self, token: int, words: Sequence[Word]) -> None:
        """Take note of what a token stands for; they come in order."""
        term, signs = NOTHING, 0
        for word in words:
            term = self._number(word)
            signs |= word.signs
        if len(words) > 1:
            self._several[token] = [self._number(word) for word in words]
            term = SEVERAL
        self._term_of.append(term)
        self._signs_of.append(signs)

    def add(self, first: int, tokens: Sequence[int], lengths: Sequence[int]) -> tuple[Ints, npt.NDArray[np.uint8]]:
        """Take in rows from `first` on, all their tokens on end: gives how many words each has, and their signs."""
        count = len(lengths)
        numbers = np.array(tokens, np.int64)
        rows = np.repeat(np.arange(count), lengths)
        terms = np.array(self._term_of, np.int64)[numbers] if len(numbers) else numbers
        if self._several:
            terms, rows = self._spelled_out(numbers, terms, rows)
        signs = np.zeros(count, np.uint8)
        some = np.flatnonzero(lengths)
        if len(some):
            ends = np.cumsum(lengths, dtype=np.int64)
            of_tokens = np.array(self._signs_of, np.uint8)[numbers]
            signs[some] = np.bitwise_or.reduceat(of_tokens, (ends - np.array(lengths))[some])
        kept = terms >= 0
        rows, terms = rows[kept], terms[kept]
        self._wait(first, rows, terms, count)
        return np.bincount(rows, minlength=count), signs

    def add_words(self, row: int, words: Sequence[Word]) -> None:
        """Take in other words of one row than its tokens stand for."""
        terms = np.array([self._number(word) for word in words], np.int64)
        self._wait(row, np.zeros(len(terms), np.int64), terms, 1)

    def of(self, term: str) -> Ints:
        """The rows that have a term."""
        number = self.terms.get(term)
        return self.rows[:0] if number is None else self.rows[self.starts[number] : self.starts[number + 1]]

    def settle(self) -> None:
        """Put waiting rows in their places."""
        if not self._waiting:
            return
        size = len(self.terms)
        terms, rows, counts = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        if len(self._waiting) > 1:
            # Numbers of 16 bits are sorted without comparing them, many times faster.
            order = np.argsort(terms.astype(np.uint16) if size <= 65_536 else terms, kind="stable")
            terms, rows, counts = terms[order], rows[order], counts[order]
        self._waiting = []
        starts = np.full(size + 1, self.starts[-1])
        starts[: len(self.starts)] = self.starts
        if len(self.rows):
            ends = starts[terms + 1]
            self.rows = np.insert(self.rows, ends, rows)
            self.counts = np.insert(self.counts, ends, counts.astype(np.float32))
        else:
            self.rows, self.counts = rows, counts.astype(np.float32)
        starts[1:] += np.cumsum(np.bincount(terms, minlength=size))
        self.starts = starts
        self.spread = np.diff(starts)

    def lookup(self, numbers: Ints) -> tuple[Ints, Ints]:
        """Where the rows of several terms stand in `rows`, one after the other, and how many each has."""
        lengths = self.spread[numbers]
        ends = np.cumsum(lengths)
        at: Ints = np.repeat(self.starts[numbers] - ends + lengths, lengths)
        at += np.arange(len(at))
        return at, lengths

    @property
    def nbytes(self) -> int:
        """About how much memory it holds."""
        arrays: list[npt.NDArray[np.generic]] = [self.rows, self.counts, self.starts, self.spread]
        waiting = sum(array.nbytes for parts in self._waiting for array in parts)
        return sum(array.nbytes for array in arrays) + 200 * len(self.terms) + 100 * len(self.tokens) + waiting

    def _number(self, word: Word) -> int:
        number = self.terms.get(word.term)
        if number is None:
            number = self.terms[word.term] = len(self.terms)
            self.forms.append(word.form)
        return number

    def _spelled_out(self, numbers: Ints, terms: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """With all terms of the tokens that have several."""
        more_terms: list[int] = []
        more_rows: list[int] = []
        for at in np.flatnonzero(terms == SEVERAL).tolist():
            found = self._several[int(numbers[at])]
            more_terms += found
            more_rows += [int(rows[at])] * len(found)
        return np.append(terms, more_terms).astype(np.int64), np.append(rows, more_rows).astype(np.int64)

    def _wait(self, first: int, rows: Ints, terms: Ints, count: int) -> None:
        """Count each term of each row, in the order of terms and then of rows."""
        keys, counts = np.unique(terms * count + rows, return_counts=True)
        found, at = np.divmod(keys, count)
        self._waiting.append((found, at + first, counts))
