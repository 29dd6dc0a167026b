"""An LRU cache of space views, each brought up to date before it is used."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tellback.errors import NotFoundError
from tellback.stores import MemoryStore, SpaceChanges, SpaceSearch, memory_rows
from tellback.stores.ports.store import erasure_subject
from tellback.types.access import Scope

if TYPE_CHECKING:
    from tellback.memory.recall.index import WordVectors
    from tellback.memory.space_view import SpaceView

SearchFactory = Callable[[], Awaitable[SpaceSearch]]
"""What to look for in a space that is too large to be held; asked for only where one is."""

DEFAULT_BYTES = 256 * 1024 * 1024
DEFAULT_ATOMS = 50_000
INLINE_ATOMS = 200
INLINE_CHARACTERS = 50_000
"""So many are taken in at once; more of them in a thread, so that nobody else has to wait."""


class _CachedSpace:
    """A space that is held, and the lock of whoever uses it."""

    __slots__ = ("counted_version", "lock", "nbytes", "view")

    def __init__(self, view: SpaceView) -> None:
        self.view = view
        self.lock = asyncio.Lock()
        self.nbytes = 0
        self.counted_version = -1


class _LoopCache:
    """What is held for one event loop, and how much memory it takes."""

    __slots__ = ("__weakref__", "nbytes", "spaces")

    def __init__(self) -> None:
        self.spaces: OrderedDict[tuple[Scope, str], _CachedSpace] = OrderedDict()
        self.nbytes = 0

    def evict(self, scope: Scope, space_id: str) -> None:
        cached = self.spaces.pop((scope, space_id), None)
        if cached is not None:
            self.nbytes -= cached.nbytes

    def evict_erased(self, subjects: Collection[str]) -> None:
        erased = {scope for scope in {scope for scope, _ in self.spaces} if erasure_subject(scope) in subjects}
        for scope, space_id in [key for key in self.spaces if key[0] in erased]:
            self.evict(scope, space_id)


class SpaceCache:
    """Spaces by scope and id, the least recently used forgotten first when they take more than `limit` bytes.

    Of a space with more than `most` atoms, only what a search finds is looked at, if the store can search. Every event
    loop holds its own: they may run in threads of their own. `ordered` is for the index.
    """

    def __init__(
        self,
        memories: MemoryStore,
        embedder: str,
        word_vectors: WordVectors | None,
        max_bytes: int = DEFAULT_BYTES,
        max_atoms: int = DEFAULT_ATOMS,
        *,
        ordered: bool = False,
    ) -> None:
        self._memories = memories
        self._embedder = embedder
        self._word_vectors = word_vectors
        self._max_bytes = max_bytes
        self._max_atoms = max_atoms if memories.can_search else None
        self._ordered = ordered
        self._loop_caches: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopCache] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return sum(len(cache.spaces) for cache in list(self._loop_caches.values()))

    @property
    def nbytes(self) -> int:
        """About how much memory they take together."""
        return sum(cache.nbytes for cache in list(self._loop_caches.values()))

    @asynccontextmanager
    async def use(self, scope: Scope, space_id: str, search: SearchFactory) -> AsyncIterator[SpaceView]:
        """A space as it is now, which nobody changes until the block ends; of one too large, what was found in it."""
        cached = self._get_or_create(scope, space_id)
        async with cached.lock:
            view = cached.view
            try:
                if view.version != await self._memories.version(scope, space_id):
                    view = await self._refresh(cached, scope, space_id, search)
            except BaseException as error:
                if cached.view.version < 0 or isinstance(error, NotFoundError):
                    self.evict(scope, space_id)  # nothing is in it, or it is gone
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
            self.evict(scope, space_id)
            view = self._new_view()
            changes = await self._memories.search_atoms(scope, space_id, await search())
        try:
            await _apply_changes(view, changes)
        except BaseException:
            cached.view = self._new_view()  # it may be half taken in: whoever waits for it begins anew
            raise
        return view

    def evict(self, scope: Scope, space_id: str) -> None:
        """Hold it no longer."""
        self._loop_cache().evict(scope, space_id)

    def evict_erased(self, subjects: Collection[str]) -> None:
        """Hold nothing more of users who were erased, in any loop; `subjects` is what the events tell."""
        here = asyncio.get_running_loop()
        for loop, cache in list(self._loop_caches.items()):
            if loop is here:
                cache.evict_erased(subjects)
                continue
            with contextlib.suppress(RuntimeError):  # that loop is closed, and nobody uses what it held
                loop.call_soon_threadsafe(cache.evict_erased, subjects)

    def clear(self) -> None:
        """Hold nothing."""
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

    def _new_view(self) -> SpaceView:
        from tellback.memory.space_view import SpaceView

        return SpaceView(self._word_vectors, ordered=self._ordered)

    def _update_size(self, scope: Scope, space_id: str, cached: _CachedSpace) -> None:
        """Count what it takes now, and make room; the one just used stays, however large."""
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
            self.evict(*oldest)


async def _apply_changes(view: SpaceView, changes: SpaceChanges) -> None:
    is_small = len(changes.atoms) + len(changes.vectors) <= INLINE_ATOMS
    if is_small and sum(len(row[memory_rows.TEXT]) for row in changes.atoms) <= INLINE_CHARACTERS:
        view.apply(changes)
        return
    # Cancelled meanwhile, the thread goes on: wait for it, so that nobody does the same beside it.
    task = asyncio.ensure_future(asyncio.to_thread(view.apply, changes))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
