"""The index of one memory space: its texts as arrays, extended as the space grows.

Adding a text costs time proportional to its length. Data that depends on all texts is updated by the next query, with a
few operations on whole arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tellback.memory.recall.dates.parser import parse_time_spans
from tellback.memory.recall.tokenizer import (
    FOLLOWS_QUESTION,
    IS_QUESTION,
    OPENS_SESSION,
    Word,
    detect_features,
    extract_all_words,
    extract_words,
    normalize_name,
    split_speaker,
    tokenize,
    words_from_token,
)

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

UNGROUPED = ""
"""The group of turns of an unknown conversation. Only turns from about the same time are neighbours."""

WINDOW_RADIUS = 4
"""How many rows a window reaches to each side."""

WINDOW_K1, WINDOW_B = 0.9, 0.4
SESSION_K1, SESSION_B = 1.2, 0.75

SESSION_GAP = 6 * 3_600_000_000
"""After a pause of this length, a conversation continues as another session, and its turns are not neighbours."""

WORD_VECTOR_DIMENSIONS = 64
"""How many dimensions of word vectors are compared. The first ones of the static embedder are nearly as good as all."""

MIN_WORD_SIMILARITY = np.float32(0.4)
"""Words with a lower similarity are treated as unrelated."""

MAX_SIMILAR_TERMS = 64
MAX_CACHED_FORMS = 2_000

PREFIX_DIMENSIONS = 64
"""How many dimensions of text vectors are also stored separately, to preselect rows in large spaces."""

MAX_SPAN = 40 * 86_400_000_000
"""Longer time spans in a text are not used to date it."""

MAX_DATED_TEXT = 4_000
MAX_DATES_PER_TEXT = 16
"""How many characters of a text are searched for times, and how many times are stored."""


BLOCK_SIZE = 16

NO_TERM = -1
MULTIPLE_TERMS = -2
"""Stored instead of a term number for a token without a term, or with several terms."""


class IndexEntry(NamedTuple):
    """One text of a space.

    `text` is the stored text; a leading "Name: " is its speaker. `timestamp` is when it was true or said, in
    microseconds since 1970. The entries of one conversation share a `group`, in the order they were added. An entry
    without a group has no neighbours.
    """

    text: str
    timestamp: int
    group: str | None = None


def round_up_to_block(size: int) -> int:
    """Round a size up to the next multiple of 16.

    BLAS multiplies the remainder of an array in different steps than the rest, so equal rows would get slightly
    different products.
    """
    return -(-size // BLOCK_SIZE) * BLOCK_SIZE


class GrowableArray:
    """An array that grows at its end, with a constant cost per row.

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
        first = self.size
        self.grow(len(values))
        if len(values):
            self._data[first : self.size] = values

    def grow(self, count: int) -> None:
        size = self.size + count
        if size > len(self._data):
            capacity = round_up_to_block(max(size, 2 * len(self._data)))
            larger = np.zeros((capacity, *self._data.shape[1:]), self._data.dtype)
            larger[: self.size] = self._data[: self.size]
            self._data = larger
        self.size = size

    @property
    def view(self) -> npt.NDArray[Any]:
        """The rows so far. The view is invalid after the next rows are added."""
        return self._data[: self.size]

    def dot(self, vector: Floats) -> Floats:
        """Multiply each row with a vector. Equal rows give equal products."""
        product: Floats = (self._data[: round_up_to_block(self.size)] @ vector)[: self.size]
        return product

    @property
    def nbytes(self) -> int:
        return int(self._data.nbytes)


class _TokenNumbers(dict[str, int]):
    """The numbers of a space's tokens. A new token is parsed when it first occurs."""

    def __init__(self, postings: Postings) -> None:
        super().__init__()
        self._postings = postings

    def __missing__(self, token: str) -> int:
        number = self[token] = len(self)
        self._postings.add_token(number, words_from_token(token))
        return number


class Postings:
    """The rows of each term, sorted by term in one array, with the term's count in each row.

    Texts are passed as tokens. Each token is parsed into terms once; the rest works with numbers, many rows at a time.
    New rows are pending until `merge_pending` inserts them, which copies the array but does not sort it.
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
        """Record the terms of a token. Tokens must be added in the order of their numbers."""
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
        """Add rows from `first` on, with their tokens concatenated. Return the word count and the features of each
        row."""
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
        """Add words of one row that differ from those of its tokens."""
        terms = np.array([self._term_number(word) for word in words], np.int64)
        self._add_pending(row, np.zeros(len(terms), np.int64), terms, 1)

    def rows_with(self, term: str) -> Ints:
        number = self.terms.get(term)
        return self.rows[:0] if number is None else self.rows[self.starts[number] : self.starts[number + 1]]

    def merge_pending(self) -> None:
        if not self._pending:
            return
        size = len(self.terms)
        terms, rows, counts = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
        if len(self._pending) > 1:
            # numpy sorts 16-bit integers by radix, many times faster.
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
        """Return the positions in `rows` of the rows of several terms, concatenated, and the number of rows per
        term."""
        lengths = self.document_frequencies[term_numbers]
        ends = np.cumsum(lengths)
        positions: Ints = np.repeat(self.starts[term_numbers] - ends + lengths, lengths)
        positions += np.arange(len(positions))
        return positions, lengths

    @property
    def nbytes(self) -> int:
        arrays = [
            self.rows,
            self.starts,
            self.document_frequencies,
            *(array for each in self._pending for array in each),
        ]
        size = self.counts.nbytes + sum(array.nbytes for array in arrays)
        return size + 200 * len(self.terms) + 100 * len(self.tokens)

    def _term_number(self, word: Word) -> int:
        number = self.terms.get(word.term)
        if number is None:
            number = self.terms[word.term] = len(self.terms)
            self.forms.append(word.form)
        return number

    def _expand_tokens(self, token_numbers: Ints, terms: Ints, rows: Ints) -> tuple[Ints, Ints]:
        extra_terms: list[int] = []
        extra_rows: list[int] = []
        for position in np.flatnonzero(terms == MULTIPLE_TERMS).tolist():
            token_terms = self._terms_of_token[int(token_numbers[position])]
            extra_terms += token_terms
            extra_rows += [int(rows[position])] * len(token_terms)
        return np.append(terms, extra_terms).astype(np.int64), np.append(rows, extra_rows).astype(np.int64)

    def _add_pending(self, first: int, rows: Ints, terms: Ints, count: int) -> None:
        """Count each term of each row, ordered by term and then by row."""
        keys, counts = np.unique(terms * count + rows, return_counts=True)
        unique_terms, unique_rows = np.divmod(keys, count)
        self._pending.append((unique_terms, unique_rows + first, counts))


@dataclass(frozen=True, slots=True)
class SessionLayout:
    """The rows laid out session by session, with a gap of `WINDOW_RADIUS` positions around each session.

    A window over neighbours is thus a shift of the whole array and never reaches into another session. Rows that are
    alone in their session come last, from position `windowed_width` on, without gaps. `sessions` numbers the sessions
    that have at least two rows; rows that are alone all get the next number. `window_damping` and `session_damping` are
    the terms that BM25 adds to the counts of a window and of a session, by their lengths.
    """

    positions: Ints
    windowed_width: int
    width: int
    sessions: Ints
    session_count: int
    order: Ints
    session_starts: Ints
    window_damping: Floats
    session_damping: Floats

    @property
    def nbytes(self) -> int:
        integers = (self.positions, self.sessions, self.order, self.session_starts)
        return sum(array.nbytes for array in (*integers, self.window_damping, self.session_damping))


def build_layout(sessions: Ints, sizes: Floats) -> SessionLayout:
    """Lay out rows by their sessions, in the order of rows. `sizes` are the rows' lengths in words."""
    row_count = len(sessions)
    session_sizes = np.bincount(sessions)
    is_single = session_sizes[sessions] == 1
    order = np.argsort(sessions, kind="stable")
    order = order[~is_single[order]]
    ordered_sessions = sessions[order]
    is_start = np.ones(len(order), np.bool_)
    is_start[1:] = ordered_sessions[1:] != ordered_sessions[:-1]
    session_numbers = np.cumsum(is_start) - 1
    session_count = int(is_start.sum())
    positions = np.empty(row_count, np.int64)
    positions[order] = np.arange(len(order)) + WINDOW_RADIUS * (session_numbers + 1)
    windowed_width = len(order) + WINDOW_RADIUS * (session_count + 1) if session_count else 0
    singles = np.flatnonzero(is_single)
    positions[singles] = windowed_width + np.arange(len(singles))
    session_of_row = np.full(row_count, session_count, np.int64)
    session_of_row[order] = session_numbers
    width = round_up_to_block(windowed_width + len(singles))
    placed_sizes = np.zeros(width, np.float32)
    placed_sizes[positions] = sizes
    window_sizes = placed_sizes.copy()
    for step in range(1, WINDOW_RADIUS + 1):
        window_sizes[step:windowed_width] += placed_sizes[: max(windowed_width - step, 0)]
        window_sizes[: max(windowed_width - step, 0)] += placed_sizes[step:windowed_width]
    lengths = np.bincount(session_of_row, sizes, minlength=session_count + 1).astype(np.float32)
    return SessionLayout(
        positions=positions,
        windowed_width=windowed_width,
        width=width,
        sessions=session_of_row,
        session_count=session_count,
        order=order,
        session_starts=np.flatnonzero(is_start),
        window_damping=_bm25_damping(window_sizes, float(window_sizes[positions].mean()), WINDOW_K1, WINDOW_B),
        session_damping=_bm25_damping(
            lengths, float(lengths[:session_count].mean()) if session_count else 1.0, SESSION_K1, SESSION_B
        ),
    )


def _bm25_damping(lengths: Floats, mean: float, k1: float, b: float) -> Floats:
    return np.asarray(k1 * (1 - b + b * lengths / max(mean, 1.0)), np.float32)


class WordVectors(Protocol):
    """Vectors of single words: mean-centred, with length 1. An unknown word has a zero row."""

    def words(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return one row per word."""


class SpaceIndex:
    """The texts of one space, ready to be ranked. Rows are numbered from 0 in the order of adding.

    `ordered` means that the first dimensions of text vectors carry the most information, as with the static embedder.
    """

    def __init__(self, word_embedder: WordVectors | None = None, *, ordered: bool = False) -> None:
        self._ordered = ordered
        self.texts: list[str] = []
        self.timestamps = GrowableArray(np.int64)
        self.features = GrowableArray(np.uint8)
        self.speakers = GrowableArray(np.int64)
        self.previous_rows = GrowableArray(np.int64)
        self.vectors: GrowableArray | None = None
        self.vector_prefixes: GrowableArray | None = None
        self.has_vector = GrowableArray(np.bool_)
        self.speaker_names: list[str] = []
        self.speakers_by_word: dict[str, list[int]] = {}
        self.postings = Postings()
        self._word_embedder = word_embedder
        self._term_vectors: Floats = np.zeros((WORD_VECTOR_DIMENSIONS, 0), np.float32)
        self._embedded_terms = 0
        self._similar_terms: dict[str, tuple[Ints, Floats]] = {}
        self._similar_terms_size = 0
        self._speaker_ids: dict[tuple[str, ...], int] = {}
        self._speaker_by_spelling: dict[str, int] = {}
        self._sessions = GrowableArray(np.int64)
        self._session_count = 0
        self._last_of_group: dict[str, tuple[int, int, int, int]] = {}
        self._groups: dict[str, list[int]] = {}
        self._group_of: list[str | None] = []
        self._position_in_group: list[int] = []
        self._row_lengths = GrowableArray(np.float32)
        self._dates_by_row: dict[int, tuple[tuple[int, int], ...]] = {}
        self._text_bytes = 0
        self._layout: SessionLayout | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, entries: Sequence[IndexEntry]) -> None:
        if not entries:
            return
        first = len(self.texts)
        features: list[int] = []
        speakers: list[int] = []
        sessions: list[int] = []
        previous_rows: list[int] = []
        token_numbers: list[int] = []
        token_counts: list[int] = []
        token_number = self.postings.tokens.__getitem__
        for row, entry in enumerate(entries, first):
            speaker, body = split_speaker(entry.text)
            row_tokens = tokenize(body)
            token_numbers += map(token_number, row_tokens)
            token_counts.append(len(row_tokens))
            session, previous_row, row_features = self._assign_session(row, entry, detect_features(body))
            sessions.append(session)
            previous_rows.append(previous_row)
            features.append(row_features)
            speakers.append(-1 if speaker is None else self._speaker_number(speaker))
            self.texts.append(entry.text)
            self._text_bytes += len(entry.text) + 60
        self.timestamps.extend([entry.timestamp for entry in entries])
        word_counts, word_features = self.postings.add(first, token_numbers, token_counts)
        for row in np.flatnonzero(word_counts == 0).tolist():
            self.postings.add_words(first + row, extract_all_words(split_speaker(entries[row].text)[1]))
        self.features.extend(np.array(features, np.uint8) | word_features)
        self.speakers.extend(speakers)
        self.previous_rows.extend(previous_rows)
        self._sessions.extend(sessions)
        self._row_lengths.extend(word_counts)
        for vectors in (self.has_vector, self.vectors, self.vector_prefixes):
            if vectors is not None:
                vectors.grow(len(entries))
        self._layout = None

    def set_vectors(self, rows: npt.NDArray[Any], vectors: npt.NDArray[np.float32]) -> None:
        """Set the unit vectors of rows. A row without a vector is neutral in the meaning signals.

        Vectors of a different length come from another embedder and replace all earlier ones.
        """
        if not len(rows):
            return
        if self.vectors is None or self.vectors.view.shape[1] != vectors.shape[1]:
            self.vectors = GrowableArray(np.float32, vectors.shape[1])
            self.vectors.grow(len(self))
            self.has_vector.view[:] = False
            self.vector_prefixes = None
            if self._ordered and vectors.shape[1] >= 2 * PREFIX_DIMENSIONS:
                self.vector_prefixes = GrowableArray(np.float32, PREFIX_DIMENSIONS)
                self.vector_prefixes.grow(len(self))
        self.vectors.view[rows] = vectors
        if self.vector_prefixes is not None:
            self.vector_prefixes.view[rows] = vectors[:, :PREFIX_DIMENSIONS]
        self.has_vector.view[rows] = vectors.any(axis=1)

    @property
    def nbytes(self) -> int:
        columns = [self.timestamps, self.features, self.speakers, self.previous_rows, self.has_vector, self._sessions]
        parts = [*columns, self._row_lengths, self._term_vectors, self.postings, self._layout]
        size = sum(part.nbytes for part in (*parts, self.vectors, self.vector_prefixes) if part is not None)
        size += 600 * len(self._similar_terms) + 100 * len(self._groups) + 300 * len(self._dates_by_row)
        return size + self._text_bytes + 32 * len(self)

    def prepare(self) -> None:
        """Compute now what the next query would otherwise have to compute first."""
        if not len(self):
            return
        _ = self.layout
        if self._word_embedder is not None:
            self._embed_terms(self._word_embedder)

    @property
    def layout(self) -> SessionLayout:
        """The current positions of the rows."""
        if self._layout is None:
            self.postings.merge_pending()
            self._layout = build_layout(self._sessions.view, self._row_lengths.view)
        return self._layout

    def neighbour_rows(self, row: int, radius: int) -> list[int]:
        """Return up to `radius` rows before and after a row in its group, in order, without the row itself."""
        group = self._group_of[row]
        if group is None:
            return []
        rows = self._groups[group]
        position = self._position_in_group[row]
        neighbours = rows[max(0, position - radius) : position] + rows[position + 1 : position + 1 + radius]
        if group == UNGROUPED:
            sessions = self._sessions.view
            neighbours = [other for other in neighbours if sessions[other] == sessions[row]]
        return neighbours

    def rows_mentioning(self, name: str) -> Bools:
        """Mark the rows that a person of that name said, and the rows whose text has all words of the name."""
        matches = np.zeros(len(self), np.bool_)
        name_parts = set(normalize_name(name))
        if not name_parts or not len(self):
            return matches
        for speaker, number in self._speaker_ids.items():
            if name_parts.issubset(speaker):
                matches |= self.speakers.view == number
        _ = self.layout
        has_all_words = np.ones(len(self), np.bool_)
        for word in extract_words(name) or extract_all_words(name):
            has_word = np.zeros(len(self), np.bool_)
            has_word[self.postings.rows_with(word.term)] = True
            has_all_words &= has_word
        return matches | has_all_words

    def similar_terms(self, forms: Sequence[str]) -> list[tuple[Ints, Floats]]:
        """Return, for each form, the terms of the space with a similar meaning and their similarity, in ascending
        order.

        The result is cached until the space gets new words, because questions share many words.
        """
        if self._word_embedder is None:
            return []
        size = len(self.postings.forms)
        if self._similar_terms_size != size or len(self._similar_terms) > MAX_CACHED_FORMS:
            self._similar_terms, self._similar_terms_size = {}, size
        missing = [form for form in dict.fromkeys(forms) if form not in self._similar_terms]
        if missing:
            form_vectors = _shorten_vectors(self._word_embedder.words(missing))
            vectors = self._embed_terms(self._word_embedder)
            for form, similarity in zip(missing, form_vectors @ vectors[: form_vectors.shape[1], :size], strict=True):
                terms = np.flatnonzero(similarity > MIN_WORD_SIMILARITY)
                terms = terms[np.argsort(similarity[terms], kind="stable")][-MAX_SIMILAR_TERMS:]
                self._similar_terms[form] = (
                    terms,
                    (similarity[terms] - MIN_WORD_SIMILARITY) / np.float32(1 - MIN_WORD_SIMILARITY),
                )
        return [self._similar_terms[form] for form in forms]

    def _embed_terms(self, embedder: WordVectors) -> Floats:
        embedded, size = self._embedded_terms, len(self.postings.forms)
        if embedded < size:
            if size > self._term_vectors.shape[1]:
                larger = np.zeros((WORD_VECTOR_DIMENSIONS, max(256, size, 2 * embedded)), np.float32)
                larger[:, :embedded] = self._term_vectors[:, :embedded]
                self._term_vectors = larger
            new_vectors = embedder.words(self.postings.forms[embedded:])
            self._term_vectors[: new_vectors.shape[1], embedded:size] = _shorten_vectors(new_vectors).T
            self._embedded_terms = size
        return self._term_vectors

    def dates_in_row(self, row: int) -> tuple[tuple[int, int], ...]:
        """Return the times that a text names, as starts and ends. A text is parsed on first use."""
        cached = self._dates_by_row.get(row)
        if cached is None:
            spans = parse_time_spans(self.texts[row][:MAX_DATED_TEXT], int(self.timestamps.view[row]))
            short_spans = [(span.start, span.end) for span in spans if span.end - span.start <= MAX_SPAN]
            cached = tuple(short_spans[:MAX_DATES_PER_TEXT])
            self._dates_by_row[row] = cached
        return cached

    def _speaker_number(self, name: str) -> int:
        """Return a speaker's number, which is the same for "Ann" and "ANN"."""
        number = self._speaker_by_spelling.get(name)
        if number is not None:
            return number
        key = normalize_name(name)
        number = self._speaker_ids.get(key)
        if number is None:
            number = self._speaker_ids[key] = len(self.speaker_names)
            self.speaker_names.append(name)
            for word in dict.fromkeys(key):
                self.speakers_by_word.setdefault(word, []).append(number)
        self._speaker_by_spelling[name] = number
        return number

    def _assign_session(self, row: int, entry: IndexEntry, features: int) -> tuple[int, int, int]:
        """Return a new row's session, its previous row there (itself if it is the first), and its updated features."""
        group = entry.group
        self._group_of.append(group)
        if group is None:
            self._position_in_group.append(0)
            self._session_count += 1
            return self._session_count - 1, row, features
        rows = self._groups.setdefault(group, [])
        self._position_in_group.append(len(rows))
        rows.append(row)
        last = self._last_of_group.get(group)
        if last is None or abs(entry.timestamp - last[1]) > SESSION_GAP:
            session, previous_row, features = self._session_count, row, features | OPENS_SESSION
            self._session_count += 1
        else:
            session, previous_row = last[2], last[0]
            features |= FOLLOWS_QUESTION if last[3] & IS_QUESTION else 0
        self._last_of_group[group] = (row, entry.timestamp, session, features)
        return session, previous_row, features


def _shorten_vectors(vectors: Floats) -> Floats:
    short = vectors[:, :WORD_VECTOR_DIMENSIONS]
    norms = np.sqrt(np.einsum("ij,ij->i", short, short))
    norms[norms == 0] = 1
    return np.asarray(short / norms[:, None], np.float32)
