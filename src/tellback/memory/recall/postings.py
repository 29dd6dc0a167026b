"""BM25 postings on growable arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tellback.memory.recall.tokenizer import Word, words_from_token

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


BLOCK_SIZE = 16

NO_TERM = -1
MULTIPLE_TERMS = -2
"""What stands for a token's term if it has none, or more than one."""


def round_up_to_block(size: int) -> int:
    """A size up to the next multiple of 16.

    What is left over of an array is multiplied in other steps than the rest of it, and equal rows would not be quite
    equal any more.
    """
    return -(-size // BLOCK_SIZE) * BLOCK_SIZE


class GrowableArray:
    """An array that grows at its end, at a constant cost a row.

    >>> rows = GrowableArray(np.int64)
    >>> rows.extend([3, 4])
    >>> rows.view.tolist()
    [3, 4]
    """

    __slots__ = ("_data", "size")

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._data: npt.NDArray[Any] = np.zeros((BLOCK_SIZE,) if width is None else (BLOCK_SIZE, width), dtype)
        self.size = 0

    def extend(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        """Add rows."""
        new_size = self.size + len(values)
        if new_size > len(self._data):
            larger = np.zeros(
                (round_up_to_block(max(new_size, 2 * len(self._data))), *self._data.shape[1:]), self._data.dtype
            )
            larger[: self.size] = self._data[: self.size]
            self._data = larger
        if len(values):
            self._data[self.size : new_size] = values
        self.size = new_size

    @property
    def view(self) -> npt.NDArray[Any]:
        """The rows so far; good until the next are added."""
        return self._data[: self.size]

    def dot(self, vector: Floats) -> Floats:
        """The product of each row with a vector; equal rows give equal products."""
        product: Floats = (self._data[: round_up_to_block(self.size)] @ vector)[: self.size]
        return product

    @property
    def nbytes(self) -> int:
        """The memory it holds."""
        return int(self._data.nbytes)


class _TokenNumbers(dict[str, int]):
    """The tokens of a space, numbered; a new one is read when it is first met."""

    def __init__(self, postings: Postings) -> None:
        super().__init__()
        self._postings = postings

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        self._postings.add_token(number, words_from_token(token))
        return number


class Postings:
    """The rows of each term, term after term in one array, with how often the term is in them.

    Texts come as tokens. What a token stands for is found out once, and the rest is done with numbers, many rows at a
    time. New rows wait until `merge_pending` puts them in their places: a copy of the array, not a sort of it.
    """

    def __init__(self) -> None:
        self.terms: dict[str, int] = {}
        self.forms: list[str] = []
        self.rows: Ints = np.zeros(0, np.int64)
        self.counts: Floats = np.zeros(0, np.float32)
        self.starts: Ints = np.zeros(1, np.int64)
        self.document_frequencies: Ints = np.zeros(0, np.int64)
        self.tokens = _TokenNumbers(self)
        self._token_terms: list[int] = []
        self._token_features: list[int] = []
        self._terms_of_token: dict[int, list[int]] = {}
        self._pending: list[tuple[Ints, Ints, Ints]] = []

    def add_token(self, token: int, words: Sequence[Word]) -> None:
        """Take note of what a token stands for; they come in order."""
        term, features = NO_TERM, 0
        for word in words:
            term = self._term_number(word)
            features |= word.features
        if len(words) > 1:
            self._terms_of_token[token] = [self._term_number(word) for word in words]
            term = MULTIPLE_TERMS
        self._token_terms.append(term)
        self._token_features.append(features)

    def add(self, first: int, tokens: Sequence[int], lengths: Sequence[int]) -> tuple[Ints, npt.NDArray[np.uint8]]:
        """Take in rows from `first` on, all their tokens on end: gives how many words each has, and their signs."""
        count = len(lengths)
        token_numbers = np.array(tokens, np.int64)
        rows = np.repeat(np.arange(count), lengths)
        terms = np.array(self._token_terms, np.int64)[token_numbers] if len(token_numbers) else token_numbers
        if self._terms_of_token:
            terms, rows = self._expand_tokens(token_numbers, terms, rows)
        features = np.zeros(count, np.uint8)
        non_empty = np.flatnonzero(lengths)
        if len(non_empty):
            ends = np.cumsum(lengths, dtype=np.int64)
            token_features = np.array(self._token_features, np.uint8)[token_numbers]
            features[non_empty] = np.bitwise_or.reduceat(token_features, (ends - np.array(lengths))[non_empty])
        known = terms >= 0
        rows, terms = rows[known], terms[known]
        self._add_pending(first, rows, terms, count)
        return np.bincount(rows, minlength=count), features

    def add_words(self, row: int, words: Sequence[Word]) -> None:
        """Take in other words of one row than its tokens stand for."""
        terms = np.array([self._term_number(word) for word in words], np.int64)
        self._add_pending(row, np.zeros(len(terms), np.int64), terms, 1)

    def rows_with(self, term: str) -> Ints:
        """The rows that have a term."""
        number = self.terms.get(term)
        return self.rows[:0] if number is None else self.rows[self.starts[number] : self.starts[number + 1]]

    def merge_pending(self) -> None:
        """Put waiting rows in their places."""
        if not self._pending:
            return
        size = len(self.terms)
        terms, rows, counts = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
        if len(self._pending) > 1:
            # Numbers of 16 bits are sorted without comparing them, many times faster.
            order = np.argsort(terms.astype(np.uint16) if size <= 65_536 else terms, kind="stable")
            terms, rows, counts = terms[order], rows[order], counts[order]
        self._pending = []
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
        self.document_frequencies = np.diff(starts)

    def lookup(self, term_numbers: Ints) -> tuple[Ints, Ints]:
        """Where the rows of several terms stand in `rows`, one after the other, and how many each has."""
        lengths = self.document_frequencies[term_numbers]
        ends = np.cumsum(lengths)
        positions: Ints = np.repeat(self.starts[term_numbers] - ends + lengths, lengths)
        positions += np.arange(len(positions))
        return positions, lengths

    @property
    def nbytes(self) -> int:
        """About how much memory it holds."""
        arrays: list[npt.NDArray[np.generic]] = [self.rows, self.counts, self.starts, self.document_frequencies]
        pending = sum(array.nbytes for parts in self._pending for array in parts)
        return sum(array.nbytes for array in arrays) + 200 * len(self.terms) + 100 * len(self.tokens) + pending

    def _term_number(self, word: Word) -> int:
        number = self.terms.get(word.term)
        if number is None:
            number = self.terms[word.term] = len(self.terms)
            self.forms.append(word.form)
        return number

    def _expand_tokens(self, token_numbers: Ints, terms: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """With all terms of the tokens that have several."""
        extra_terms: list[int] = []
        extra_rows: list[int] = []
        for position in np.flatnonzero(terms == MULTIPLE_TERMS).tolist():
            token_terms = self._terms_of_token[int(token_numbers[position])]
            extra_terms += token_terms
            extra_rows += [int(rows[position])] * len(token_terms)
        return np.append(terms, extra_terms).astype(np.int64), np.append(rows, extra_rows).astype(np.int64)

    def _add_pending(self, first: int, rows: Ints, terms: Ints, count: int) -> None:
        """Count each term of each row, in the order of terms and then of rows."""
        keys, counts = np.unique(terms * count + rows, return_counts=True)
        unique_terms, unique_rows = np.divmod(keys, count)
        self._pending.append((unique_terms, unique_rows + first, counts))
