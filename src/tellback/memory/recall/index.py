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
from tellback.memory.recall.entry import LOOSE, Entry, split_speaker
from tellback.memory.recall.grown import Bools, Floats, Grown, Ints
from tellback.memory.recall.layout import Layout, lay_out
from tellback.memory.recall.postings import Postings
from tellback.memory.recall.words import all_words, name_words, tokens, words

__all__ = ["Bools", "Floats", "Grown", "Ints", "SpaceIndex", "WordVectors"]

SESSION_GAP = 6 * 3_600_000_000
"""A conversation that rests so long goes on as another session: what was said yesterday is no neighbour."""

SHORT = 64
"""How many dimensions of word vectors are compared. The static embedder's first ones say nearly all there is to say."""

LEAST_ALIKE = np.float32(0.4)
"""Words whose vectors are less alike than this have nothing to do with each other."""

MOST_ALIKE = 64
MOST_KEPT = 2_000

HEAD = 64
"""How many dimensions of text vectors are kept apart as well, for a first look at many rows."""

LONGEST_SPAN = 40 * 86_400_000_000
"""Longer stretches of time that a text speaks of do not date it."""

MOST_TEXT = 4_000
MOST_TIMES = 16
"""How much of a text is read for times, and how many of them are kept."""


class WordVectors(Protocol):
    """Vectors of single words: mean-centred, of unit length, a zero row for a word that is not known."""

    def words(self, words: Sequence[str]) -> npt.NDArray[np.float32]:
        """One row for each word."""


class SpaceIndex:
    """The texts of one space, ready to be ranked. Rows are numbered from 0 in the order of adding.

    `ordered` says that the first dimensions of text vectors say the most, as the static embedder's do.
    """

    def __init__(self, words: WordVectors | None = None, *, ordered: bool = False) -> None:
        self._ordered = ordered
        self.texts: list[str] = []
        self.moments = Grown(np.int64)
        self.signs = Grown(np.uint8)
        self.speakers = Grown(np.int64)
        self.before = Grown(np.int64)
        self.vectors: Grown | None = None
        self.heads: Grown | None = None
        self.embedded = Grown(np.bool_)
        self.speaker_names: list[str] = []
        self.speakers_by_word: dict[str, list[int]] = {}
        self.postings = Postings()
        self._words = words
        self._word_vectors: Floats = np.zeros((SHORT, 0), np.float32)
        self._words_known = 0
        self._alike: dict[str, tuple[Ints, Floats]] = {}
        self._alike_size = 0
        self._speaker_ids: dict[tuple[str, ...], int] = {}
        self._spellings: dict[str, int] = {}
        self._sessions = Grown(np.int64)
        self._session_count = 0
        self._last: dict[str, tuple[int, int, int, int]] = {}
        self._groups: dict[str, list[int]] = {}
        self._group_of: list[str | None] = []
        self._place_in_group: list[int] = []
        self._sizes = Grown(np.float32)
        self._times: dict[int, tuple[tuple[int, int], ...]] = {}
        self._text_bytes = 0
        self._layout: Layout | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add entries as the next rows."""
        if not entries:
            return
        first = len(self.texts)
        signs: list[int] = []
        speakers: list[int] = []
        sessions: list[int] = []
        befores: list[int] = []
        numbers: list[int] = []
        lengths: list[int] = []
        number_of = self.postings.tokens.__getitem__
        for row, entry in enumerate(entries, first):
            speaker, said = split_speaker(entry.text)
            found = tokens(said)
            numbers += map(number_of, found)
            lengths.append(len(found))
            session, before, sign = self._follow(row, entry, hints.text_signs(said))
            sessions.append(session)
            befores.append(before)
            signs.append(sign)
            speakers.append(-1 if speaker is None else self._speaker_of(speaker))
            self.texts.append(entry.text)
            self._text_bytes += len(entry.text) + 60
        self.moments.extend([entry.moment for entry in entries])
        sizes, of_words = self.postings.add(first, numbers, lengths)
        for row in np.flatnonzero(sizes == 0).tolist():
            self.postings.add_words(first + row, all_words(split_speaker(entries[row].text)[1]))
        self.signs.extend(np.array(signs, np.uint8) | of_words)
        self.speakers.extend(speakers)
        self.before.extend(befores)
        self.embedded.extend(np.zeros(len(entries), np.bool_))
        self._sessions.extend(sessions)
        self._sizes.extend(sizes)
        if self.vectors is not None:
            self.vectors.extend(np.zeros((len(entries), self.vectors.view.shape[1]), np.float32))
        if self.heads is not None:
            self.heads.extend(np.zeros((len(entries), HEAD), np.float32))
        self._layout = None

    def set_vectors(self, rows: npt.NDArray[Any], vectors: npt.NDArray[np.float32]) -> None:
        """Give rows the unit vectors of their texts; a row without one is neutral where meaning is compared.

        Vectors of another length take the place of all before them: they are another embedder's.
        """
        if not len(rows):
            return
        if self.vectors is None or self.vectors.view.shape[1] != vectors.shape[1]:
            self.vectors = Grown(np.float32, vectors.shape[1])
            self.vectors.extend(np.zeros((len(self), vectors.shape[1]), np.float32))
            self.embedded.view[:] = False
            self.heads = None
            if self._ordered and vectors.shape[1] >= 2 * HEAD:
                self.heads = Grown(np.float32, HEAD)
                self.heads.extend(np.zeros((len(self), HEAD), np.float32))
        self.vectors.view[rows] = vectors
        if self.heads is not None:
            self.heads.view[rows] = vectors[:, :HEAD]
        self.embedded.view[rows] = vectors.any(axis=1)

    @property
    def nbytes(self) -> int:
        """About how much memory it holds, texts included."""
        grown = [self.moments, self.signs, self.speakers, self.before, self.embedded, self._sessions]
        arrays = sum(array.nbytes for array in [*grown, self._sizes]) + self._word_vectors.nbytes + self.postings.nbytes
        arrays += sum(vectors.nbytes for vectors in (self.vectors, self.heads) if vectors is not None)
        arrays += 0 if self._layout is None else self._layout.nbytes
        arrays += 600 * len(self._alike)
        return arrays + self._text_bytes + 32 * len(self) + 100 * len(self._groups) + 300 * len(self._times)

    def prepare(self) -> None:
        """Do now what the next query would have to do first."""
        if not len(self):
            return
        _ = self.layout
        if self._words is not None:
            self._vectors_of_terms(self._words)

    @property
    def layout(self) -> Layout:
        """Where the rows stand, as of now."""
        if self._layout is None:
            self.postings.settle()
            self._layout = lay_out(self._sessions.view, self._sizes.view)
        return self._layout

    def group_rows(self, row: int, around: int) -> list[int]:
        """The rows up to `around` places before and after a row in its group, in order, without itself."""
        group = self._group_of[row]
        if group is None:
            return []
        rows = self._groups[group]
        place = self._place_in_group[row]
        found = rows[max(0, place - around) : place] + rows[place + 1 : place + 1 + around]
        if group == LOOSE:
            sessions = self._sessions.view
            found = [other for other in found if sessions[other] == sessions[row]]
        return found

    def mentions(self, name: str) -> Bools:
        """Which rows were said by that name, or have all words of it in their text."""
        found = np.zeros(len(self), np.bool_)
        key = set(name_words(name))
        if not key or not len(self):
            return found
        for speaker, number in self._speaker_ids.items():
            if key.issubset(speaker):
                found |= self.speakers.view == number
        _ = self.layout
        everywhere = np.ones(len(self), np.bool_)
        for word in words(name) or all_words(name):
            here = np.zeros(len(self), np.bool_)
            here[self.postings.of(word.term)] = True
            everywhere &= here
        return found | everywhere

    def alike(self, forms: Sequence[str]) -> list[tuple[Ints, Floats]]:
        """For each of some words, the terms of the space that mean nearly the same, and how much so, the least first.

        Questions have many words in common, so what was found is kept until the space has new words.
        """
        if self._words is None:
            return []
        size = len(self.postings.forms)
        if self._alike_size != size or len(self._alike) > MOST_KEPT:
            self._alike, self._alike_size = {}, size
        missing = [form for form in dict.fromkeys(forms) if form not in self._alike]
        if missing:
            asked = _short(self._words.words(missing))
            vectors = self._vectors_of_terms(self._words)
            for form, near in zip(missing, asked @ vectors[: asked.shape[1], :size], strict=True):
                terms = np.flatnonzero(near > LEAST_ALIKE)
                terms = terms[np.argsort(near[terms], kind="stable")][-MOST_ALIKE:]
                self._alike[form] = (terms, (near[terms] - LEAST_ALIKE) / np.float32(1 - LEAST_ALIKE))
        return [self._alike[form] for form in forms]

    def _vectors_of_terms(self, words: WordVectors) -> Floats:
        known, size = self._words_known, len(self.postings.forms)
        if known < size:
            if size > self._word_vectors.shape[1]:
                grown = np.zeros((SHORT, max(256, size, 2 * known)), np.float32)
                grown[:, :known] = self._word_vectors[:, :known]
                self._word_vectors = grown
            fresh = words.words(self.postings.forms[known:])
            self._word_vectors[: fresh.shape[1], known:size] = _short(fresh).T
            self._words_known = size
        return self._word_vectors

    def times_of(self, row: int) -> tuple[tuple[int, int], ...]:
        """The times a text speaks of, as starts and ends. It is read when first asked for."""
        found = self._times.get(row)
        if found is None:
            spans = dates.read_text(self.texts[row][:MOST_TEXT], int(self.moments.view[row]))
            short = [(span.start, span.end) for span in spans if span.end - span.start <= LONGEST_SPAN]
            found = tuple(short[:MOST_TIMES])
            self._times[row] = found
        return found

    def _speaker_of(self, name: str) -> int:
        """A speaker's number; the same for "Ann" and "ANN"."""
        number = self._spellings.get(name)
        if number is not None:
            return number
        key = name_words(name)
        number = self._speaker_ids.get(key)
        if number is None:
            number = self._speaker_ids[key] = len(self.speaker_names)
            self.speaker_names.append(name)
            for word in dict.fromkeys(key):
                self.speakers_by_word.setdefault(word, []).append(number)
        self._spellings[name] = number
        return number

    def _follow(self, row: int, entry: Entry, sign: int) -> tuple[int, int, int]:
        """A new row's session, the row before it there (itself if there is none), and its signs with what that adds."""
        group = entry.group
        self._group_of.append(group)
        if group is None:
            self._place_in_group.append(0)
            self._session_count += 1
            return self._session_count - 1, row, sign
        rows = self._groups.setdefault(group, [])
        self._place_in_group.append(len(rows))
        rows.append(row)
        last = self._last.get(group)
        if last is None or abs(entry.moment - last[1]) > SESSION_GAP:
            session, before, sign = self._session_count, row, sign | hints.OPENING
            self._session_count += 1
        else:
            session, before = last[2], last[0]
            sign |= hints.ANSWER if last[3] & hints.QUESTION else 0
        self._last[group] = (row, entry.moment, session, sign)
        return session, before, sign


def _short(vectors: Floats) -> Floats:
    short = vectors[:, :SHORT]
    lengths = np.sqrt(np.einsum("ij,ij->i", short, short))
    lengths[lengths == 0] = 1
    return np.asarray(short / lengths[:, None], np.float32)
