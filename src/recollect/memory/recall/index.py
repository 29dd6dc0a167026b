"""The index of one memory space: its texts as arrays, grown as the space grows.

Adding a text costs its own words. What depends on all texts (where each stands among its neighbours, the postings) is
brought up to date by the next query, by array operations only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recollect.memory.recall import hints
from recollect.memory.recall.entry import Entry, split_speaker
from recollect.memory.recall.words import Word, all_words, name_words, words

REACH = 4
# A conversation that rests this long goes on as another session: what was said yesterday is no neighbour.
SESSION_GAP = 6 * 3_600_000_000
SHORT = 64

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class WordVectors(Protocol):
    """Vectors of single words: mean-centred, of unit length, a zero row for a word that is not known."""

    def words(self, words: Sequence[str]) -> npt.NDArray[np.float32]: ...


class Grown:
    """An array that grows at its end, at a constant cost a row."""

    __slots__ = ("_data", "size")

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._data: npt.NDArray[Any] = np.zeros((16,) if width is None else (16, width), dtype)
        self.size = 0

    def extend(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        wanted = self.size + len(values)
        if wanted > len(self._data):
            grown = np.zeros((max(wanted, 2 * len(self._data)), *self._data.shape[1:]), self._data.dtype)
            grown[: self.size] = self._data[: self.size]
            self._data = grown
        if len(values):
            self._data[self.size : wanted] = values
        self.size = wanted

    @property
    def view(self) -> npt.NDArray[Any]:
        return self._data[: self.size]

    @property
    def nbytes(self) -> int:
        return int(self._data.nbytes)


class SpaceIndex:
    """The texts of one space, ready to be ranked. Rows are numbered from 0 in the order of adding."""

    def __init__(self, words: WordVectors | None = None) -> None:
        self._words = words
        self.texts: list[str] = []
        self.moments = Grown(np.int64)
        self.signs = Grown(np.int32)
        self.speakers = Grown(np.int32)
        self.sessions = Grown(np.int64)
        self.sizes = Grown(np.float32)
        self.lengths = Grown(np.float32)
        self.first = Grown(np.bool_)
        self.vectors: Grown | None = None
        self.has_vector = Grown(np.bool_)
        self.speaker_ids: dict[tuple[str, ...], int] = {}
        self.speaker_names: list[str] = []
        self.entity_rows: dict[tuple[str, ...], list[int]] = {}
        self.entity_names: dict[tuple[str, ...], str] = {}
        self.vocabulary: dict[str, int] = {}
        self._forms: list[str] = []
        self._groups: dict[str, list[int]] = {}
        self._group_of: list[str | None] = []
        self._place_in_group: list[int] = []
        self._open: dict[str, tuple[int, int]] = {}
        self._session_count = 0
        self._pending_terms: list[int] = []
        self._pending_rows: list[int] = []
        self._pending_counts: list[int] = []
        self._text_bytes = 0
        self._fresh = False
        self.word_vectors: Grown | None = None
        self.short_vectors: npt.NDArray[np.float32] = np.zeros((SHORT, 0), np.float32)
        self.postings: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.counts: npt.NDArray[np.float32] = np.zeros(0, np.float32)
        self.starts: Ints = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add entries as the next rows."""
        if not entries:
            return
        signs: list[int] = []
        speakers: list[int] = []
        sessions: list[int] = []
        sizes: list[int] = []
        lengths: list[int] = []
        first: list[bool] = []
        row = len(self.texts)
        for entry in entries:
            speaker, said = split_speaker(entry.text)
            found = words(said)
            sign = hints.text_signs(said)
            for word in found:
                sign |= word.signs
            signs.append(sign)
            sizes.append(len(found))
            lengths.append(said.count(" ") + 1)
            self._add_words(row, found or all_words(said))
            speakers.append(-1 if speaker is None else self._speaker_id(speaker))
            session, is_first = self._session(row, entry)
            sessions.append(session)
            first.append(is_first)
            for name in entry.names:
                key = name_words(name)
                if key:
                    self.entity_rows.setdefault(key, []).append(row)
                    self.entity_names.setdefault(key, name)
            self.texts.append(entry.text)
            self._text_bytes += len(entry.text) + 60
            row += 1
        self.moments.extend([entry.moment for entry in entries])
        self.signs.extend(signs)
        self.speakers.extend(speakers)
        self.sessions.extend(sessions)
        self.sizes.extend(sizes)
        self.lengths.extend(lengths)
        self.first.extend(first)
        self.has_vector.extend(np.zeros(len(entries), np.bool_))
        if self.vectors is not None:
            self.vectors.extend(np.zeros((len(entries), self.vectors.view.shape[1]), np.float32))
        self._fresh = False

    def set_vectors(self, rows: npt.NDArray[Any], vectors: npt.NDArray[np.float32]) -> None:
        """Give rows the unit vectors of their texts; a row without one is neutral where meaning is compared."""
        if not len(rows):
            return
        if self.vectors is None or self.vectors.view.shape[1] != vectors.shape[1]:
            self.vectors = Grown(np.float32, vectors.shape[1])
            self.vectors.extend(np.zeros((len(self), vectors.shape[1]), np.float32))
            self.has_vector.view[:] = False
        self.vectors.view[rows] = vectors
        self.has_vector.view[rows] = np.any(vectors != 0, axis=1)
        self._fresh = False

    @property
    def nbytes(self) -> int:
        """About how much memory it holds."""
        grown = [
            self.moments,
            self.signs,
            self.speakers,
            self.sessions,
            self.sizes,
            self.lengths,
            self.first,
            self.has_vector,
        ]
        arrays = sum(array.nbytes for array in grown)
        arrays += sum(array.nbytes for array in (self.vectors, self.word_vectors) if array is not None)
        arrays += self.short_vectors.nbytes + self.postings.nbytes + self.counts.nbytes + self.starts.nbytes
        return arrays + self._text_bytes + 150 * len(self.vocabulary) + 120 * len(self) + 24 * len(self._pending_rows)

    def group_rows(self, row: int, around: int) -> list[int]:
        """The rows up to `around` places before and after a row in its group, in order, without itself."""
        group = self._group_of[row]
        if group is None:
            return []
        rows = self._groups[group]
        place = self._place_in_group[row]
        return rows[max(0, place - around) : place] + rows[place + 1 : place + 1 + around]

    def mentions(self, name: str) -> Bools:
        """Which rows were said by somebody, are linked to it, or have all words of its name in their text."""
        key = name_words(name)
        found = np.zeros(len(self), np.bool_)
        if not key:
            return found
        self.refresh()
        for speaker, number in self.speaker_ids.items():
            if set(key) <= set(speaker):
                found |= self.speakers.view == number
        for entity, rows in self.entity_rows.items():
            if set(key) <= set(entity):
                found[rows] = True
        terms = words(name) or all_words(name)
        everywhere = np.ones(len(self), np.bool_)
        for word in terms:
            here = np.zeros(len(self), np.bool_)
            term = self.vocabulary.get(word.term)
            if term is not None:
                here[self.postings[self.starts[term] : self.starts[term + 1]]] = True
            everywhere &= here
        return found | everywhere if terms else found

    def refresh(self) -> None:
        """Bring up to date what depends on all rows."""
        if self._fresh:
            return
        self._refresh_postings()
        self._refresh_places()
        self._refresh_word_vectors()
        self._refresh_meaning()
        self._fresh = True

    def _add_words(self, row: int, found: list[Word]) -> None:
        counted: dict[int, int] = {}
        vocabulary = self.vocabulary
        for word in found:
            number = vocabulary.get(word.term)
            if number is None:
                number = vocabulary[word.term] = len(vocabulary)
                self._forms.append(word.form)
            counted[number] = counted.get(number, 0) + 1
        self._pending_terms += counted
        self._pending_counts += counted.values()
        self._pending_rows += [row] * len(counted)

    def _speaker_id(self, name: str) -> int:
        key = name_words(name)
        number = self.speaker_ids.get(key)
        if number is None:
            number = self.speaker_ids[key] = len(self.speaker_names)
            self.speaker_names.append(name)
        return number

    def _session(self, row: int, entry: Entry) -> tuple[int, bool]:
        """The session a row belongs to, and whether it opens it. Without a group, a session of its own."""
        self._group_of.append(entry.group)
        if entry.group is None:
            self._place_in_group.append(0)
            self._session_count += 1
            return self._session_count - 1, False
        rows = self._groups.setdefault(entry.group, [])
        self._place_in_group.append(len(rows))
        rows.append(row)
        last = self._open.get(entry.group)
        if last is None or abs(entry.moment - last[1]) > SESSION_GAP:
            self._open[entry.group] = (self._session_count, entry.moment)
            self._session_count += 1
            return self._session_count - 1, True
        self._open[entry.group] = (last[0], entry.moment)
        return last[0], False

    def _refresh_postings(self) -> None:
        terms = np.array(self._pending_terms, np.int64)
        rows = np.array(self._pending_rows, np.int32)
        counts = np.array(self._pending_counts, np.float32)
        self._pending_terms, self._pending_rows, self._pending_counts = [], [], []
        order = np.argsort(terms.astype(np.uint16) if len(self.vocabulary) < 65_536 else terms, kind="stable")
        terms, rows, counts = terms[order], rows[order], counts[order]
        starts = np.zeros(len(self.vocabulary) + 1, np.int64)
        starts[: len(self.starts)] = self.starts
        starts[len(self.starts) :] = self.starts[-1]
        if len(self.postings):
            at = starts[terms + 1]
            self.postings = np.insert(self.postings, at, rows)
            self.counts = np.insert(self.counts, at, counts)
        else:
            self.postings, self.counts = rows, counts
        starts[1:] += np.cumsum(np.bincount(terms, minlength=len(self.vocabulary)))
        self.starts = starts
        self.spread = np.diff(starts)

    def _refresh_places(self) -> None:
        """Lay the rows out so that neighbours stand side by side, with a gap between sessions.

        Rows that are alone in their session have no neighbours and stand past `self.windowed`, without gaps.
        """
        sessions = self.sessions.view
        n = len(self)
        sizes = np.bincount(sessions, minlength=self._session_count)
        alone = sizes[sessions] == 1
        order = np.argsort(sessions, kind="stable")
        order = order[~alone[order]]
        in_order = sessions[order]
        opens = np.ones(len(order), np.bool_)
        opens[1:] = in_order[1:] != in_order[:-1]
        self.places = np.empty(n, np.int64)
        numbers = np.cumsum(opens) - 1
        self.places[order] = np.arange(len(order)) + REACH * (numbers + 1)
        self.windowed = int(len(order) + REACH * (int(opens.sum()) + 1)) if len(order) else 0
        lonely = np.flatnonzero(alone)
        self.places[lonely] = self.windowed + np.arange(len(lonely))
        self.width = self.windowed + len(lonely)
        self.session_of = np.empty(n, np.int64)
        self.session_of[order] = numbers
        self.session_count = int(opens.sum())
        self.session_of[lonely] = self.session_count + np.arange(len(lonely))
        self.previous = np.full(n, -1, np.int64)
        if len(order) > 1:
            follows = ~opens[1:]
            self.previous[order[1:][follows]] = order[:-1][follows]
        self.placed_sizes = np.zeros(self.width, np.float32)
        self.placed_sizes[self.places] = self.sizes.view
        self.session_sizes = np.bincount(self.session_of, self.sizes.view, minlength=1).astype(np.float32)

    def _refresh_word_vectors(self) -> None:
        if self._words is None or not self._forms:
            return
        known = 0 if self.word_vectors is None else self.word_vectors.size
        if known < len(self._forms):
            fresh = self._words.words(self._forms[known:])
            if self.word_vectors is None:
                self.word_vectors = Grown(np.float32, fresh.shape[1])
            self.word_vectors.extend(fresh)

    def _refresh_meaning(self) -> None:
        pass
