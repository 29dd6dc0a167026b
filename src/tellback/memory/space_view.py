"""A memory space as arrays that recall ranks, and the cache that keeps such views up to date."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tellback.errors import NotFoundError
from tellback.memory.recall.index import (
    UNGROUPED,
    Bools,
    Floats,
    GrowableArray,
    IndexEntry,
    Ints,
    SpaceIndex,
    WordVectors,
)
from tellback.memory.recall.tokenizer import split_speaker
from tellback.stores import MemoryStore, SpaceChanges, SpaceSearch
from tellback.stores import rows as store_rows
from tellback.stores.values import erasure_subject
from tellback.types.access import Scope
from tellback.types.ids import fold_name
from tellback.types.memory import MIN_DECAY_WEIGHT, Atom, AtomStatus, CategoryKind, Entity, EntityStatus

NEVER = 2**62
EPISODE = CategoryKind.EPISODE.value
ACTIVE, ARCHIVED, DELETED = 1, 2, 0
STATUS_CODES = {AtomStatus.ACTIVE.value: ACTIVE, AtomStatus.ARCHIVED.value: ARCHIVED, AtomStatus.DELETED.value: DELETED}
KINDS = tuple(CategoryKind)
KIND_CODES = {kind.value: number for number, kind in enumerate(KINDS)}
HALF_LIVES = np.array([kind.half_life.total_seconds() * 1e6 for kind in KINDS])
MAX_NAME_WORDS = 8
MAX_TEXT_WORDS = 200
SURROUNDING_PUNCTUATION = "\"'\u201c\u201d\u2018.,;:!?()[]\u2026"

HOUR_MICROS = 3_600_000_000
AGE_WEIGHTS = np.array([0.01 if kind is CategoryKind.EPISODE else 0.25 for kind in KINDS])
IMPORTANCE_WEIGHT = 0.25
DEFAULT_IMPORTANCE = 3
"""Weights of a memory's age, by its kind, and of its importance, in log-odds.

An old fact may be outdated. An old episode still happened, so its age only decides between equally good answers.
"""

MAX_CACHED_ATOMS = 1_000

ROW_BYTES = 900
"""The approximate size of a row besides its text."""

INDEXED_COLUMNS = (
    *("id", "text", "category", "kind", "importance", "status", "valid_from", "created_at"),
    *("source_conversation_id", "entity_ids"),
)

SearchFactory = Callable[[], Awaitable[SpaceSearch]]
"""Builds the search for a space that is too large to be cached. It is called only for such a space."""

INLINE_ATOMS = 200
INLINE_CHARACTERS = 50_000
"""Up to this size, changes are applied in the event loop; larger ones in a thread, so that they do not block it."""


@dataclass(frozen=True, slots=True)
class RecallFilter:
    """The filter of the atoms that recall may return. Times are in microseconds. `must_have_started` excludes atoms
    that begin after `valid_at`."""

    valid_at: int
    known_at: int = NEVER
    must_have_started: bool = False
    include_superseded: bool = False
    include_archived: bool = False
    categories: tuple[str, ...] | None = None
    min_importance: int = 0


@dataclass(frozen=True, slots=True)
class PriorScores:
    """The scores of the rows' age and importance, and their sum. They are valid for one hour."""

    hour: int
    age: Floats
    importance: Floats
    total: Floats


class SpaceView:
    """One space at one version. Row i is the atom with seq i + 1."""

    def __init__(self, words: WordVectors | None, *, ordered: bool = False) -> None:
        self.version = -1
        self.index = SpaceIndex(words, ordered=ordered)
        self.rows: list[store_rows.Row] = []
        self.valid_from = GrowableArray(np.int64)
        self._kinds = GrowableArray(np.int8)
        self.importance = GrowableArray(np.int8)
        self._created_at = GrowableArray(np.int64)
        self._statuses = GrowableArray(np.int8)
        self._categories = GrowableArray(np.int32)
        self._end_known_at = GrowableArray(np.int64)
        self._ends_at = GrowableArray(np.int64)
        self._extra_validity_ends: dict[int, list[tuple[int, int]]] = {}
        self._category_codes: dict[str, int] = {}
        self._embedded = GrowableArray(np.bool_)
        self._names_by_entity: dict[str, frozenset[str]] = {}
        self._entities_by_name: dict[str, list[str]] = {}
        self._max_name_words = 0
        self._rows_by_entity: dict[str, set[int]] = {}
        self._row_by_id: dict[str, int] = {}
        self._prior_scores: PriorScores | None = None
        self._atoms: dict[int, Atom] = {}
        self.has_all_vectors = True
        """Whether every recallable text has a vector of the current embedder."""
        self._text_bytes = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        columns = sum(
            column.nbytes for column in (self.valid_from, self._end_known_at, self._created_at, self._ends_at)
        )
        extra = 200 * len(self._entities_by_name) + 150 * sum(map(len, self._extra_validity_ends.values()))
        return self.index.nbytes + 2 * columns + self._text_bytes + ROW_BYTES * len(self.rows) + extra

    def chain(self, row: int) -> list[int]:
        """Return the rows that superseded each other, including this one."""
        found = [row]
        for column in ("supersedes", "superseded_by"):
            other = self._row_by_id.get(self.rows[row][column])
            while other is not None:
                found.append(other)
                other = self._row_by_id.get(self.rows[other][column])
        return found

    def atom(self, row: int) -> Atom:
        """Return the atom of a row. Atoms are cached because the same ones are often recalled."""
        found = self._atoms.get(row)
        if found is None:
            if len(self._atoms) >= MAX_CACHED_ATOMS:
                self._atoms.clear()
            found = self._atoms[row] = store_rows.ATOM.read(self.rows[row])
        return found

    def decay(self, rows: Ints, now: int) -> npt.NDArray[np.float64]:
        """Return the fraction of each row's weight that is left at its age."""
        return _decay(now - self.valid_from.view[rows], HALF_LIVES[self._kinds.view[rows]])

    def prior_scores(self, now: int) -> PriorScores:
        """Return the scores of age and importance. They hardly change within an hour, so they are cached for that
        long."""
        hour = now // HOUR_MICROS
        if self._prior_scores is None or self._prior_scores.hour != hour:
            decay = _decay(hour * HOUR_MICROS - self.valid_from.view, HALF_LIVES[self._kinds.view])
            age = np.asarray(AGE_WEIGHTS[self._kinds.view] * np.log(decay), np.float32)
            importance = np.asarray(IMPORTANCE_WEIGHT * (self.importance.view - float(DEFAULT_IMPORTANCE)), np.float32)
            self._prior_scores = PriorScores(hour, age, importance, age + importance)
        return self._prior_scores

    def apply(self, changes: SpaceChanges) -> None:
        self._prior_scores = None
        self._atoms.clear()
        present = len(self.rows)
        added = []
        for row in changes.atoms:
            number = row["seq"] - 1
            if number >= present:
                added.append(row)
                continue
            self._update_row(number, row)
            # A changed row comes with all its validity ends, and an earlier one may have been removed.
            self._end_known_at.view[number] = self._ends_at.view[number] = NEVER
            self._extra_validity_ends.pop(number, None)
        if added:
            self._append_rows(added)
        for seq, known_at, valid_to in changes.validity_ends:
            if seq <= len(self.rows):
                self._add_validity_end(seq - 1, known_at, valid_to)
        self._set_vectors([(seq - 1, vector) for seq, vector in changes.vectors if seq <= len(self.rows)])
        for entity in changes.entities:
            self._index_entity(entity)
        self.has_all_vectors = bool((self._embedded.view | (self._statuses.view == DELETED)).all())
        self.index.prepare()
        self.version = changes.version

    def eligible(self, filter: RecallFilter) -> Bools:
        statuses = self._statuses.view
        mask: Bools = statuses != DELETED if filter.include_archived else statuses == ACTIVE
        if not filter.include_superseded:
            if filter.known_at == NEVER:
                mask &= self._ends_at.view > filter.valid_at
            else:
                mask &= (self._end_known_at.view > filter.known_at) | (self._ends_at.view > filter.valid_at)
            for row, validity_ends in self._extra_validity_ends.items():
                if any(
                    known_at <= filter.known_at and ends_at <= filter.valid_at for known_at, ends_at in validity_ends
                ):
                    mask[row] = False
        if filter.known_at < NEVER:
            mask &= self._created_at.view <= filter.known_at
        if filter.must_have_started:
            mask &= self.valid_from.view <= filter.valid_at
        if filter.categories is not None:
            codes = [self._category_codes[name] for name in filter.categories if name in self._category_codes]
            mask &= np.isin(self._categories.view, codes)
        if filter.min_importance > 1:
            mask &= self.importance.view >= filter.min_importance
        return mask

    def overlapping(self, start: int, end: int, known_at: int = NEVER) -> Bools:
        """Mark the rows that are valid at some time between two times (both included), as known at `known_at`."""
        ends = np.where(self._end_known_at.view <= known_at, self._ends_at.view, NEVER)
        for row, validity_ends in self._extra_validity_ends.items():
            ends[row] = min(
                [ends[row], *(ends_at for end_known_at, ends_at in validity_ends if end_known_at <= known_at)]
            )
        mask: Bools = (self.valid_from.view <= end) & ((ends > start) | (self.valid_from.view >= start))
        return mask

    def rows_about(self, entity_ids: Collection[str]) -> Ints:
        """Return the rows that are linked to any of these entities."""
        found: set[int] = set()
        for id in entity_ids:
            found |= self._rows_by_entity.get(id, set())
        return np.array(sorted(found), np.int64)

    def mask_mentioning(self, entity_ids: Collection[str]) -> Bools:
        """Mark the rows that are linked to any of these entities, or mention one of their names."""
        found = np.zeros(len(self), np.bool_)
        found[self.rows_about(entity_ids)] = True
        for id in entity_ids:
            for name in self._names_by_entity.get(id, ()):
                found |= self.index.rows_mentioning(name)
        return found

    def entities_named_in(self, text: str) -> list[str]:
        """Return the ids of the entities that a text names."""
        if not self._entities_by_name:
            return []
        candidates = name_candidates(text, self._max_name_words)
        ids = dict.fromkeys(id for name in candidates for id in self._entities_by_name.get(name, ()))
        return list(ids)

    def _append_rows(self, rows: list[store_rows.Row]) -> None:
        first = len(self.rows)
        ids, texts, categories, kinds, importance, statuses, valid_from, created_at, conversation_ids, entity_ids = (
            store_rows.read_columns(rows, *INDEXED_COLUMNS)
        )
        self.index.extend(list(map(_index_entry, texts, valid_from, conversation_ids, kinds)))
        self.rows += rows
        self.valid_from.extend(valid_from)
        self._created_at.extend(created_at)
        self._kinds.extend([KIND_CODES[kind] for kind in kinds])
        self.importance.extend(importance)
        self._statuses.extend([STATUS_CODES[status] for status in statuses])
        codes = self._category_codes
        self._categories.extend([codes.setdefault(name, len(codes)) for name in categories])
        for column in (self._end_known_at, self._ends_at):
            column.extend(np.full(len(rows), NEVER))
        self._embedded.grow(len(rows))
        self._text_bytes += sum(map(len, texts))
        self._row_by_id.update(zip(ids, range(first, first + len(rows)), strict=True))
        for number, about in enumerate(entity_ids, first):
            if about != "[]":
                for id in store_rows.parse_ids(about):
                    self._rows_by_entity.setdefault(id, set()).add(number)

    def _update_row(self, number: int, row: store_rows.Row) -> None:
        """Update a row. An atom's text never changes, but its status, its end and its entities may."""
        for id in store_rows.parse_ids(self.rows[number]["entity_ids"]):
            self._rows_by_entity.get(id, set()).discard(number)
        for id in store_rows.parse_ids(row["entity_ids"]):
            self._rows_by_entity.setdefault(id, set()).add(number)
        self.rows[number] = row
        self._statuses.view[number] = STATUS_CODES[row["status"]]

    def _add_validity_end(self, number: int, known_at: int, ends_at: int) -> None:
        """Add a validity end. Nearly all atoms have at most one; further ones are stored in a dictionary."""
        present = (int(self._end_known_at.view[number]), int(self._ends_at.view[number]))
        if present == (NEVER, NEVER):
            self._end_known_at.view[number], self._ends_at.view[number] = known_at, ends_at
        elif present != (known_at, ends_at):
            extra = self._extra_validity_ends.setdefault(number, [])
            if (known_at, ends_at) not in extra:
                extra.append((known_at, ends_at))

    def _set_vectors(self, found: list[tuple[int, bytes]]) -> None:
        if not found:
            return
        # An embedder must not change the length of its vectors under one name. If it does, the newest vectors are used.
        length = len(max(found)[1])
        self._embedded.view[[number for number, _ in found]] = True
        found = [(number, vector) for number, vector in found if len(vector) == length]
        numbers = np.array([number for number, _ in found], np.int64)
        vectors = np.frombuffer(b"".join(vector for _, vector in found), "<f2").reshape(len(found), -1)
        self.index.set_vectors(numbers, vectors.astype(np.float32))

    def _index_entity(self, entity: Entity) -> None:
        for name in self._names_by_entity.pop(entity.id, ()):
            self._entities_by_name[name].remove(entity.id)
            if not self._entities_by_name[name]:
                del self._entities_by_name[name]
        if entity.status is EntityStatus.ACTIVE:
            names = self._names_by_entity[entity.id] = _entity_names(entity)
            for name in names:
                self._entities_by_name.setdefault(name, []).append(entity.id)
                self._max_name_words = min(max(self._max_name_words, len(name.split())), MAX_NAME_WORDS)


def _decay(age: Ints, half_lives: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.maximum(np.exp2(-np.maximum(age, 0) / half_lives), MIN_DECAY_WEIGHT)


def name_candidates(text: str, longest: int = MAX_NAME_WORDS) -> Iterator[str]:
    """Yield every sequence of up to `longest` words that could be a name, folded, without surrounding punctuation.

    >>> list(name_candidates("Did José's sister call?", 3))[3:6]
    ['jose', 'jose sister', 'jose sister call']
    """
    return _word_runs(_name_words(text), longest)


def stored_name_candidates(text: str) -> Iterator[str]:
    """Yield the same candidates with the dots and commas inside names, as entities are stored.

    >>> "dr. weber" in stored_name_candidates("Did you call Dr. Weber?")
    True
    """
    for name in _word_runs(fold_name(text).split(), MAX_NAME_WORDS):
        yield name
        yield name.strip(SURROUNDING_PUNCTUATION)


def _word_runs(words: list[str], longest: int) -> Iterator[str]:
    for start in range(min(len(words), MAX_TEXT_WORDS)):
        for end in range(start + 1, min(start + longest, len(words)) + 1):
            yield " ".join(words[start:end])


def _name_words(text: str) -> list[str]:
    return [
        word.strip(SURROUNDING_PUNCTUATION).removesuffix("'s")
        for word in fold_name(text).replace("\u2019", "'").split()
    ]


def _index_entry(text: str, valid_from: int, conversation_id: str | None, kind: str) -> IndexEntry:
    """Group an atom with its neighbours.

    Turns of one conversation are neighbours, and so are the facts from it, separately. A turn of an unknown
    conversation is a neighbour of turns from the same time.
    """
    if conversation_id is None:
        return IndexEntry(text, valid_from, None if split_speaker(text)[0] is None else UNGROUPED)
    return IndexEntry(text, valid_from, conversation_id if kind == EPISODE else f"{conversation_id} facts")


def _entity_names(entity: Entity) -> frozenset[str]:
    return frozenset(" ".join(_name_words(name)) for name in (entity.canonical_name, *entity.aliases))


@dataclass(slots=True, eq=False)
class _CachedSpace:
    """A cached space, and the lock that its users hold."""

    view: SpaceView
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    nbytes: int = 0
    counted_version: int = -1


@dataclass(slots=True, eq=False)
class _LoopCache:
    """The cached spaces of one event loop, and their total size."""

    spaces: OrderedDict[tuple[Scope, str], _CachedSpace] = field(default_factory=OrderedDict)
    nbytes: int = 0

    def evict(self, scope: Scope, space_id: str) -> None:
        cached = self.spaces.pop((scope, space_id), None)
        if cached is not None:
            self.nbytes -= cached.nbytes

    def evict_erased(self, subjects: Collection[str]) -> None:
        erased = {scope for scope in {scope for scope, _ in self.spaces} if erasure_subject(scope) in subjects}
        for scope, space_id in [key for key in self.spaces if key[0] in erased]:
            self.evict(scope, space_id)


class SpaceCache:
    """Spaces by scope and id. The least recently used are evicted when they take more than `max_bytes`.

    Of a space with more than `max_atoms` atoms, only the results of a search are loaded, if the store can search. Every
    event loop has its own cache, because loops may run in different threads.
    """

    def __init__(
        self,
        memories: MemoryStore,
        embedder: str,
        new_view: Callable[[], SpaceView],
        max_bytes: int,
        max_atoms: int,
    ) -> None:
        self._memories = memories
        self._embedder = embedder
        self._new_view = new_view
        self._max_bytes = max_bytes
        self._max_atoms = max_atoms if memories.can_search else None
        self._loop_caches: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopCache] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(len(cache.spaces) for cache in list(self._loop_caches.values()))

    @property
    def nbytes(self) -> int:
        return sum(cache.nbytes for cache in list(self._loop_caches.values()))

    @asynccontextmanager
    async def use(self, scope: Scope, space_id: str, search: SearchFactory) -> AsyncIterator[SpaceView]:
        """Yield the current state of a space and lock it until the block ends; for a large space, the search
        results."""
        cached = self._get_or_create(scope, space_id)
        async with cached.lock:
            view = cached.view
            try:
                if view.version != await self._memories.version(scope, space_id):
                    view = await self._refresh(cached, scope, space_id, search)
            except BaseException as error:
                if cached.view.version < 0 or isinstance(error, NotFoundError):
                    self._loop_cache().evict(scope, space_id)  # the view is empty, or the space was deleted
                raise
            try:
                yield view
            finally:
                self._update_size(scope, space_id, cached)

    async def _refresh(self, cached: _CachedSpace, scope: Scope, space_id: str, search: SearchFactory) -> SpaceView:
        view = cached.view
        changes = await self._memories.changes(
            scope, space_id, after=view.version, embedder=self._embedder, max_atoms=self._max_atoms
        )
        if self._max_atoms is not None and changes.last_seq > self._max_atoms:
            self._loop_cache().evict(scope, space_id)
            view = self._new_view()
            changes = await self._memories.search_atoms(scope, space_id, await search())
        try:
            await _apply_changes(view, changes)
        except BaseException:
            cached.view = self._new_view()  # the changes may be half applied, so the next user loads the space again
            raise
        return view

    def evict_erased(self, subjects: Collection[str]) -> None:
        """Remove the spaces of erased users from the caches of all loops. `subjects` come from the erasure events."""
        here = asyncio.get_running_loop()
        for loop, cache in list(self._loop_caches.items()):
            if loop is here:
                cache.evict_erased(subjects)
                continue
            with contextlib.suppress(RuntimeError):  # that loop is closed, so its cache is unused
                loop.call_soon_threadsafe(cache.evict_erased, subjects)

    def clear(self) -> None:
        self._loop_caches.clear()

    def _loop_cache(self) -> _LoopCache:
        loop = asyncio.get_running_loop()
        cache = self._loop_caches.get(loop)
        if cache is None:
            with self._lock:
                cache = self._loop_caches.setdefault(loop, _LoopCache())
        return cache

    def _get_or_create(self, scope: Scope, space_id: str) -> _CachedSpace:
        spaces = self._loop_cache().spaces
        cached = spaces.get((scope, space_id))
        if cached is None:
            cached = spaces[scope, space_id] = _CachedSpace(self._new_view())
        spaces.move_to_end((scope, space_id))
        return cached

    def _update_size(self, scope: Scope, space_id: str, cached: _CachedSpace) -> None:
        """Update the size of a space and evict others if needed. The space just used stays, however large it is."""
        cache = self._loop_cache()
        if cached.counted_version == cached.view.version or cache.spaces.get((scope, space_id)) is not cached:
            return
        cached.counted_version = cached.view.version
        nbytes = cached.view.nbytes
        cache.nbytes += nbytes - cached.nbytes
        cached.nbytes = nbytes
        while cache.nbytes > self._max_bytes and len(cache.spaces) > 1:
            oldest = next(iter(cache.spaces))
            if oldest == (scope, space_id):
                break
            cache.evict(*oldest)


async def _apply_changes(view: SpaceView, changes: SpaceChanges) -> None:
    is_small = len(changes.atoms) + len(changes.vectors) <= INLINE_ATOMS
    if is_small and sum(len(row["text"]) for row in changes.atoms) <= INLINE_CHARACTERS:
        view.apply(changes)
        return
    # Cancelling does not stop the thread. Wait for it, so that no other task applies the same changes in parallel.
    task = asyncio.ensure_future(asyncio.to_thread(view.apply, changes))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
