"""Which rows have which words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from recollect.memory.recall.grown import Floats, Ints
from recollect.memory.recall.words import Word


class Postings:
    """The rows of each term, term after term in one array, with how often the term is in them.

    New rows wait in lists until `settle` puts them in their places: a copy of the array, not a sort of it.
    """

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}
        self.forms: list[str] = []
        self.rows: Ints = np.zeros(0, np.int64)
        self.counts: Floats = np.zeros(0, np.float32)
        self.starts: Ints = np.zeros(1, np.int64)
        self.spread: Ints = np.zeros(0, np.int64)
        self._terms: list[int] = []
        self._rows: list[int] = []
        self._counts: list[int] = []

    def add(self, row: int, words: Sequence[Word]) -> int:
        """Take in the words of a row; rows come in order. Gives what the words are signs of."""
        terms = self.terms
        counted: dict[int, int] = {}
        signs = 0
        for term, form, sign in words:
            signs |= sign
            number = terms.get(term)
            if number is None:
                number = terms[term] = len(terms)
                self.forms.append(form)
            counted[number] = counted.get(number, 0) + 1
        self._terms += counted
        self._counts += counted.values()
        self._rows += [row] * len(counted)
        return signs

    def of(self, term: str) -> Ints:
        """The rows that have a term."""
        number = self.terms.get(term)
        return self.rows[:0] if number is None else self.rows[self.starts[number] : self.starts[number + 1]]

    def settle(self) -> None:
        """Put waiting rows in their places."""
        size = len(self.terms)
        terms = np.array(self._terms, np.int64)
        # Numbers of 16 bits are sorted without comparing them, many times faster.
        order = np.argsort(terms.astype(np.uint16) if size <= 65_536 else terms, kind="stable")
        terms = terms[order]
        rows = np.array(self._rows, np.int64)[order]
        counts = np.array(self._counts, np.float32)[order]
        self._terms, self._rows, self._counts = [], [], []
        starts = np.full(size + 1, self.starts[-1])
        starts[: len(self.starts)] = self.starts
        if len(self.rows):
            ends = starts[terms + 1]
            self.rows = np.insert(self.rows, ends, rows)
            self.counts = np.insert(self.counts, ends, counts)
        else:
            self.rows, self.counts = rows, counts
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
        return sum(array.nbytes for array in arrays) + 200 * len(self.terms) + 24 * len(self._rows)
