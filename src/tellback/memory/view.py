"""A space held in this process: its index, what recall filters by, and its rows, brought up to date by what changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tellback.memory.recall.entry import LOOSE, Entry, split_speaker
from tellback.memory.recall.index import Grown, SpaceIndex, WordVectors
from tellback.stores import SpaceChanges, memory_rows
from tellback.types.memory import LEAST_WEIGHT, Atom, AtomStatus, CategoryKind, Entity, EntityStatus
from tellback.types.names import folded

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

NEVER = 2**62
EPISODE = CategoryKind.EPISODE.value
ACTIVE, ARCHIVED = AtomStatus.ACTIVE.value, AtomStatus.ARCHIVED.value
KINDS = tuple(CategoryKind)
KIND_NUMBERS = {kind.value: number for number, kind in enumerate(KINDS)}
HALF_LIVES = np.array([kind.half_life.total_seconds() * 1e6 for kind in KINDS])
LONGEST_NAME = 8
LONGEST_TEXT = 200
AROUND_WORDS = "\"'\u201c\u201d\u2018.,;:!?()[]\u2026"

HOUR = 3_600_000_000
AGES = np.array([0.01 if kind is CategoryKind.EPISODE else 0.25 for kind in KINDS])
IMPORTANCE = 0.25
USUAL_IMPORTANCE = 3
"""What a memory's age, by its kind, and importance count, in log-odds. An old fact may no longer hold. An old episode
happened all the same: its age decides between those that answer equally well, and does not bury the best."""

MOST_ATOMS = 1_000

ROW_BYTES = 900
"""About what a row takes besides its text: the tuple, its ids, its moments."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which atoms recall may give, by moments in microseconds; `begun` leaves out what begins only after `valid_at`."""

    valid_at: int
    known_at: int = NEVER
    begun: bool = False
    over: bool = False
    archived: bool = False
    categories: tuple[str, ...] | None = None
    least_importance: int = 0


@dataclass(frozen=True, slots=True)
class Lasting:
    """What the rows' age and importance count, and both together, within one hour."""

    hour: int
    age: Floats
    importance: Floats
    together: Floats


class SpaceView:
    """One space as of a version. Row i is the atom of seq i + 1."""

    def __init__(self, words: WordVectors | None, *, ordered: bool = False) -> None:
        self.version = -1
        self.index = SpaceIndex(words, ordered=ordered)
        self.rows: list[Sequence[Any]] = []
        self.valid_from = Grown(np.int64)
        self._kinds = Grown(np.int8)
        self.importance = Grown(np.int8)
        self._created_at = Grown(np.int64)
        self._active = Grown(np.bool_)
        self._archived = Grown(np.bool_)
        self._categories = Grown(np.int32)
        self._known_over = Grown(np.int64)
        self._over_at = Grown(np.int64)
        self._more_closings: dict[int, list[tuple[int, int]]] = {}
        self._category_codes: dict[str, int] = {}
        self._embedded = Grown(np.bool_)
        self._names_of: dict[str, frozenset[str]] = {}
        self._by_name: dict[str, list[str]] = {}
        self._longest_name = 0
        self._about: dict[str, set[int]] = {}
        self._numbers: dict[str, int] = {}
        self._lasting: Lasting | None = None
        self._atoms: dict[int, Atom] = {}
        self.has_all_vectors = True
        """Whether every text that may be recalled has been embedded by the present embedder."""
        self._text_bytes = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        columns = sum(column.nbytes for column in (self.valid_from, self._known_over, self._created_at, self._over_at))
        aside = 200 * len(self._by_name) + 150 * sum(map(len, self._more_closings.values()))
        return self.index.nbytes + 2 * columns + self._text_bytes + ROW_BYTES * len(self.rows) + aside

    def chain(self, row: int) -> list[int]:
        """The rows that stood in one place one after the other, this one among them."""
        found = [row]
        for place in (memory_rows.SUPERSEDES, memory_rows.SUPERSEDED_BY):
            other = self._numbers.get(self.rows[row][place])
            while other is not None:
                found.append(other)
                other = self._numbers.get(self.rows[other][place])
        return found

    def atom(self, row: int) -> Atom:
        """The atom of a row. Some are asked for again and again, and kept."""
        found = self._atoms.get(row)
        if found is None:
            if len(self._atoms) >= MOST_ATOMS:
                self._atoms.clear()
            found = self._atoms[row] = memory_rows.atom(self.rows[row])
        return found

    def decay(self, rows: Ints, now: int) -> npt.NDArray[np.float64]:
        """What time left of the rows' weight."""
        return _decay(now - self.valid_from.view[rows], HALF_LIVES[self._kinds.view[rows]])

    def lasting(self, now: int) -> Lasting:
        """What age and importance count. It hardly changes within an hour, and is kept for so long."""
        hour = now // HOUR
        if self._lasting is None or self._lasting.hour != hour:
            decay = _decay(hour * HOUR - self.valid_from.view, HALF_LIVES[self._kinds.view])
            age = np.asarray(AGES[self._kinds.view] * np.log(decay), np.float32)
            importance = np.asarray(IMPORTANCE * (self.importance.view - float(USUAL_IMPORTANCE)), np.float32)
            self._lasting = Lasting(hour, age, importance, age + importance)
        return self._lasting

    def apply(self, changes: SpaceChanges) -> None:
        """Take in what changed."""
        self._lasting = None
        self._atoms.clear()
        present = len(self.rows)
        added = [row for row in changes.atoms if row[memory_rows.SEQ] > present]
        for row in changes.atoms:
            number = row[memory_rows.SEQ] - 1
            if number < present:
                self._change(number, row)
                # All closings of what changed come along: an earlier one may be gone.
                self._known_over.view[number] = self._over_at.view[number] = NEVER
                self._more_closings.pop(number, None)
        if added:
            self._add(added)
        for seq, known_at, valid_to in changes.closings:
            if seq <= len(self.rows):
                self._close(seq - 1, known_at, valid_to)
        self._take_vectors([(seq - 1, vector) for seq, vector in changes.vectors if seq <= len(self.rows)])
        for entity in changes.entities:
            self._name(entity)
        self.has_all_vectors = bool((self._embedded.view | ~(self._active.view | self._archived.view)).all())
        self.index.prepare()
        self.version = changes.version

    def eligible(self, wanted: Wanted) -> Bools:
        """Which rows may be given."""
        kept: Bools = self._active.view | self._archived.view if wanted.archived else self._active.view.copy()
        if not wanted.over:
            if wanted.known_at == NEVER:
                kept &= self._over_at.view > wanted.valid_at
            else:
                kept &= (self._known_over.view > wanted.known_at) | (self._over_at.view > wanted.valid_at)
            for row, closings in self._more_closings.items():
                if any(known_at <= wanted.known_at and over <= wanted.valid_at for known_at, over in closings):
                    kept[row] = False
        if wanted.known_at < NEVER:
            kept &= self._created_at.view <= wanted.known_at
        if wanted.begun:
            kept &= self.valid_from.view <= wanted.valid_at
        if wanted.categories is not None:
            codes = [self._category_codes[name] for name in wanted.categories if name in self._category_codes]
            kept &= np.isin(self._categories.view, codes)
        if wanted.least_importance > 1:
            kept &= self.importance.view >= wanted.least_importance
        return kept

    def overlapping(self, start: int, end: int, known_at: int = NEVER) -> Bools:
        """Which rows hold at some moment between these two, both included, as far as was known then."""
        ends = np.where(self._known_over.view <= known_at, self._over_at.view, NEVER)
        for row, closings in self._more_closings.items():
            ends[row] = min([ends[row], *(over for known_over, over in closings if known_over <= known_at)])
        held: Bools = (self.valid_from.view <= end) & ((ends > start) | (self.valid_from.view >= start))
        return held

    def about(self, entity_ids: Collection[str]) -> Ints:
        """The rows that are linked to any of these entities."""
        found: set[int] = set()
        for id in entity_ids:
            found |= self._about.get(id, set())
        return np.array(sorted(found), np.int64)

    def mentioning(self, entity_ids: Collection[str]) -> Bools:
        """Which rows are linked to any of these entities, or mention one by a name of its own."""
        found = np.zeros(len(self), np.bool_)
        found[self.about(entity_ids)] = True
        for id in entity_ids:
            for name in self._names_of.get(id, ()):
                found |= self.index.mentions(name)
        return found

    def named_in(self, text: str) -> list[str]:
        """The ids of the entities that a text names."""
        if not self._by_name:
            return []
        candidates = name_candidates(text, self._longest_name)
        ids = dict.fromkeys(id for name in candidates for id in self._by_name.get(name, ()))
        return list(ids)

    def _add(self, rows: list[Sequence[Any]]) -> None:
        first = len(self.rows)
        self.index.extend([_entry(row) for row in rows])
        self.rows += rows
        columns = list(zip(*rows, strict=True))
        self.valid_from.extend(columns[memory_rows.VALID_FROM])
        self._created_at.extend(columns[memory_rows.CREATED_AT])
        self._kinds.extend([KIND_NUMBERS[kind] for kind in columns[memory_rows.KIND]])
        self.importance.extend(columns[memory_rows.IMPORTANCE])
        statuses = columns[memory_rows.STATUS]
        self._active.extend([status == ACTIVE for status in statuses])
        self._archived.extend([status == ARCHIVED for status in statuses])
        codes = self._category_codes
        self._categories.extend([codes.setdefault(name, len(codes)) for name in columns[memory_rows.CATEGORY]])
        for never in (self._known_over, self._over_at):
            never.extend(np.full(len(rows), NEVER))
        self._embedded.extend(np.zeros(len(rows), np.bool_))
        self._text_bytes += sum(map(len, columns[memory_rows.TEXT]))
        self._numbers.update(zip(columns[0], range(first, first + len(rows)), strict=True))
        for number, ids in enumerate(columns[memory_rows.ENTITY_IDS], first):
            if ids != "[]":
                for id in memory_rows.ids(ids):
                    self._about.setdefault(id, set()).add(number)

    def _change(self, number: int, row: Sequence[Any]) -> None:
        """An atom's words never change; its status, its end and what it is about may."""
        before, after = (memory_rows.ids(each[memory_rows.ENTITY_IDS]) for each in (self.rows[number], row))
        if before != after:
            for id in before:
                self._about.get(id, set()).discard(number)
            for id in after:
                self._about.setdefault(id, set()).add(number)
        self.rows[number] = row
        self._active.view[number] = row[memory_rows.STATUS] == AtomStatus.ACTIVE
        self._archived.view[number] = row[memory_rows.STATUS] == AtomStatus.ARCHIVED

    def _close(self, number: int, known_at: int, over_at: int) -> None:
        """Nearly all atoms have one closing at most; what else there is stands aside."""
        present = (int(self._known_over.view[number]), int(self._over_at.view[number]))
        if present == (NEVER, NEVER):
            self._known_over.view[number], self._over_at.view[number] = known_at, over_at
        elif present != (known_at, over_at):
            more = self._more_closings.setdefault(number, [])
            if (known_at, over_at) not in more:
                more.append((known_at, over_at))

    def _take_vectors(self, found: list[tuple[int, bytes]]) -> None:
        if not found:
            return
        # An embedder whose vectors change their length under one name breaks its promise: its newest count.
        length = len(max(found)[1])
        self._embedded.view[[number for number, _ in found]] = True
        found = [(number, vector) for number, vector in found if len(vector) == length]
        numbers = np.array([number for number, _ in found], np.int64)
        vectors = np.frombuffer(b"".join(vector for _, vector in found), "<f2").reshape(len(found), -1)
        self.index.set_vectors(numbers, vectors.astype(np.float32))

    def _name(self, entity: Entity) -> None:
        for name in self._names_of.pop(entity.id, ()):
            self._by_name[name].remove(entity.id)
            if not self._by_name[name]:
                del self._by_name[name]
        if entity.status is EntityStatus.ACTIVE:
            names = self._names_of[entity.id] = _names(entity)
            for name in names:
                self._by_name.setdefault(name, []).append(entity.id)
                self._longest_name = min(max(self._longest_name, len(name.split())), LONGEST_NAME)


def _decay(age: Ints, half_lives: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.maximum(np.exp2(-np.maximum(age, 0) / half_lives), LEAST_WEIGHT)


def name_candidates(text: str, longest: int = LONGEST_NAME) -> Iterator[str]:
    """Whatever in a text could be a name of so many words, folded, without what stands around words.

    >>> list(name_candidates("Did José's sister call?", 3))[3:6]
    ['jose', 'jose sister', 'jose sister call']
    """
    return _on_end(_spoken(text), longest)


def written_candidates(text: str) -> Iterator[str]:
    """The same with the points and commas inside of names, as entities are stored.

    >>> "dr. weber" in written_candidates("Did you call Dr. Weber?")
    True
    """
    for name in _on_end(folded(text).split(), LONGEST_NAME):
        yield name
        yield name.strip(AROUND_WORDS)


def _on_end(words: list[str], longest: int) -> Iterator[str]:
    for start in range(min(len(words), LONGEST_TEXT)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            yield " ".join(words[start:end])


def _spoken(text: str) -> list[str]:
    return [word.strip(AROUND_WORDS).removesuffix("'s") for word in folded(text).replace("\u2019", "'").split()]


def _entry(row: Sequence[Any]) -> Entry:
    """Turns of one conversation are each other's neighbours; facts made from it stand beside them, not among them.

    What somebody said, and nobody told in which conversation, stands beside what was said at the same time.
    """
    group = row[memory_rows.SOURCE_CONVERSATION_ID]
    if group is None and split_speaker(row[memory_rows.TEXT])[0] is not None:
        return Entry(row[memory_rows.TEXT], row[memory_rows.VALID_FROM], LOOSE)
    if group is not None and row[memory_rows.KIND] != EPISODE:
        group = f"{group} facts"
    return Entry(row[memory_rows.TEXT], row[memory_rows.VALID_FROM], group)


def _names(entity: Entity) -> frozenset[str]:
    return frozenset(" ".join(_spoken(name)) for name in (entity.canonical_name, *entity.aliases))
