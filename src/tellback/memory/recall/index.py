"""The index of one memory space: its texts as arrays, grown as the space grows.

Adding a text costs its own words. What depends on all texts is brought up to date by the next query, by a few
operations on whole arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tellback.memory.recall import dates, hints
from tellback.memory.recall.entry import UNGROUPED, IndexEntry, split_speaker
from tellback.memory.recall.grown import Bools, Floats, GrowableArray, Ints
from tellback.memory.recall.layout import SessionLayout, build_layout
from tellback.memory.recall.postings import Postings
from tellback.memory.recall.words import extract_all_words, extract_words, normalize_name, tokenize

__all__ = ["Bools", "Floats", "GrowableArray", "Ints", "SpaceIndex", "WordVectors"]

SESSION_GAP = 6 * 3_600_000_000
"""A conversation that rests so long goes on as another session: what was said yesterday is no neighbour."""

WORD_VECTOR_DIMENSIONS = 64
"""How many dimensions of word vectors are compared. The static embedder's first ones say nearly all there is to say."""

MIN_WORD_SIMILARITY = np.float32(0.4)
"""Words whose vectors are less alike than this have nothing to do with each other."""

MAX_SIMILAR_TERMS = 64
MAX_CACHED_FORMS = 2_000

PREFIX_DIMENSIONS = 64
"""How many dimensions of text vectors are kept apart as well, for a first look at many rows."""

MAX_SPAN = 40 * 86_400_000_000
"""Longer stretches of time that a text speaks of do not date it."""

MAX_DATED_TEXT = 4_000
MAX_DATES_PER_TEXT = 16
"""How much of a text is read for times, and how many of them are kept."""


class WordVectors(Protocol):
    """Vectors of single words: mean-centred, of unit length, a zero row for a word that is not known."""

    def words(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        """One row for each word."""


class SpaceIndex:
    """The texts of one space, ready to be ranked. Rows are numbered from 0 in the order of adding.

    `ordered` says that the first dimensions of text vectors say the most, as the static embedder's do.
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
        """Add entries as the next rows."""
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
            session, previous_row, row_features = self._assign_session(row, entry, hints.detect_features(body))
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
        self.has_vector.extend(np.zeros(len(entries), np.bool_))
        self._sessions.extend(sessions)
        self._row_lengths.extend(word_counts)
        if self.vectors is not None:
            self.vectors.extend(np.zeros((len(entries), self.vectors.view.shape[1]), np.float32))
        if self.vector_prefixes is not None:
            self.vector_prefixes.extend(np.zeros((len(entries), PREFIX_DIMENSIONS), np.float32))
        self._layout = None

    def set_vectors(self, rows: npt.NDArray[Any], vectors: npt.NDArray[np.float32]) -> None:
        """Give rows the unit vectors of their texts; a row without one is neutral where meaning is compared.

        Vectors of another length take the place of all before them: they are another embedder's.
        """
        if not len(rows):
            return
        if self.vectors is None or self.vectors.view.shape[1] != vectors.shape[1]:
            self.vectors = GrowableArray(np.float32, vectors.shape[1])
            self.vectors.extend(np.zeros((len(self), vectors.shape[1]), np.float32))
            self.has_vector.view[:] = False
            self.vector_prefixes = None
            if self._ordered and vectors.shape[1] >= 2 * PREFIX_DIMENSIONS:
                self.vector_prefixes = GrowableArray(np.float32, PREFIX_DIMENSIONS)
                self.vector_prefixes.extend(np.zeros((len(self), PREFIX_DIMENSIONS), np.float32))
        self.vectors.view[rows] = vectors
        if self.vector_prefixes is not None:
            self.vector_prefixes.view[rows] = vectors[:, :PREFIX_DIMENSIONS]
        self.has_vector.view[rows] = vectors.any(axis=1)

    @property
    def nbytes(self) -> int:
        """About how much memory it holds, texts included."""
        columns = [self.timestamps, self.features, self.speakers, self.previous_rows, self.has_vector, self._sessions]
        size = (
            sum(array.nbytes for array in [*columns, self._row_lengths])
            + self._term_vectors.nbytes
            + self.postings.nbytes
        )
        size += sum(vectors.nbytes for vectors in (self.vectors, self.vector_prefixes) if vectors is not None)
        size += 0 if self._layout is None else self._layout.nbytes
        size += 600 * len(self._similar_terms)
        return size + self._text_bytes + 32 * len(self) + 100 * len(self._groups) + 300 * len(self._dates_by_row)

    def prepare(self) -> None:
        """Do now what the next query would have to do first."""
        if not len(self):
            return
        _ = self.layout
        if self._word_embedder is not None:
            self._embed_terms(self._word_embedder)

    @property
    def layout(self) -> SessionLayout:
        """Where the rows stand, as of now."""
        if self._layout is None:
            self.postings.merge_pending()
            self._layout = build_layout(self._sessions.view, self._row_lengths.view)
        return self._layout

    def neighbour_rows(self, row: int, radius: int) -> list[int]:
        """The rows up to `around` places before and after a row in its group, in order, without itself."""
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
        """Which rows were said by that name, or have all words of it in their text."""
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
        """For each of some words, the terms of the space that mean nearly the same, and how much so, the least first.

        Questions have many words in common, so what was found is kept until the space has new words.
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
        """The times a text speaks of, as starts and ends. It is read when first asked for."""
        cached = self._dates_by_row.get(row)
        if cached is None:
            spans = dates.parse_time_spans(self.texts[row][:MAX_DATED_TEXT], int(self.timestamps.view[row]))
            short_spans = [(span.start, span.end) for span in spans if span.end - span.start <= MAX_SPAN]
            cached = tuple(short_spans[:MAX_DATES_PER_TEXT])
            self._dates_by_row[row] = cached
        return cached

    def _speaker_number(self, name: str) -> int:
        """A speaker's number; the same for "Ann" and "ANN"."""
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
        """A new row's session, the row before it there (itself if there is none), and its signs with what that adds."""
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
            session, previous_row, features = self._session_count, row, features | hints.OPENS_SESSION
            self._session_count += 1
        else:
            session, previous_row = last[2], last[0]
            features |= hints.FOLLOWS_QUESTION if last[3] & hints.IS_QUESTION else 0
        self._last_of_group[group] = (row, entry.timestamp, session, features)
        return session, previous_row, features


def _shorten_vectors(vectors: Floats) -> Floats:
    short = vectors[:, :WORD_VECTOR_DIMENSIONS]
    norms = np.sqrt(np.einsum("ij,ij->i", short, short))
    norms[norms == 0] = 1
    return np.asarray(short / norms[:, None], np.float32)
