"""Keys that were looked up just now, so that a busy server does not ask the store at every request."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakSet

from tellback.stores import StoredKey
from tellback.types.caches import register_cache

MAX_CACHED_KEYS = 10_000
MAX_CACHED_MISSES = 1_000
"""How many are held at most: keys, and ids that no key has, which must not drive out keys."""

KeyLoader = Callable[[str], Awaitable[StoredKey | None]]


@dataclass(frozen=True, slots=True)
class _CachedKey:
    stored: StoredKey | None
    expires: float


class ApiKeyCache:
    """Keys by id, each held for some seconds; the least recently used are forgotten first.

    Those who ask for one key at the same time wait for one look-up. What was read before a `forget` is not held after
    it, nor given to anyone who asks later.
    """

    def __init__(self, load: KeyLoader, cache_seconds: float, timer: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._cache_seconds = cache_seconds
        self._timer = timer
        self._found: OrderedDict[str, _CachedKey] = OrderedDict()
        self._missing: OrderedDict[str, _CachedKey] = OrderedDict()
        self._loading: dict[tuple[asyncio.AbstractEventLoop, str, int], asyncio.Task[StoredKey | None]] = {}
        self._generation = 0
        with _caches_lock:
            _caches.add(self)

    def __len__(self) -> int:
        return len(self._found) + len(self._missing)

    async def get(self, id: str) -> StoredKey | None:
        """The key of that id as it was some seconds ago at most."""
        for entries in (self._found, self._missing):
            entry = entries.get(id)
            if entry is not None and self._timer() < entry.expires:
                entries.move_to_end(id)
                return entry.stored
        request_key = (asyncio.get_running_loop(), id, self._generation)
        task = self._loading.get(request_key)
        if task is None:
            task = self._loading[request_key] = asyncio.create_task(self._load_key(id))
            task.add_done_callback(lambda ended: self._on_loaded(request_key, ended))
        return await asyncio.shield(task)  # whoever gives up does so alone

    def invalidate(self, id: str) -> None:
        """Look this one up again."""
        self._generation += 1
        self._found.pop(id, None)
        self._missing.pop(id, None)

    def clear(self) -> None:
        """Look all of them up again."""
        self._generation += 1
        # New ones: another thread may erase a user while this one looks.
        self._found, self._missing = OrderedDict(), OrderedDict()

    async def _load_key(self, id: str) -> StoredKey | None:
        generation, expires = self._generation, self._timer() + self._cache_seconds
        stored = await self._load(id)
        if generation == self._generation:
            self._add(id, _CachedKey(stored, expires))
        return stored

    def _add(self, id: str, entry: _CachedKey) -> None:
        self._found.pop(id, None)
        self._missing.pop(id, None)
        entries, max_entries = (
            (self._missing, MAX_CACHED_MISSES) if entry.stored is None else (self._found, MAX_CACHED_KEYS)
        )
        entries[id] = entry
        if len(entries) > max_entries:
            entries.popitem(last=False)

    def _on_loaded(
        self, request_key: tuple[asyncio.AbstractEventLoop, str, int], task: asyncio.Task[StoredKey | None]
    ) -> None:
        self._loading.pop(request_key, None)
        if not task.cancelled():
            task.exception()  # heard, also if everyone who waited has gone


_caches: WeakSet[ApiKeyCache] = WeakSet()
_caches_lock = threading.Lock()


def _clear_all_caches() -> None:
    with _caches_lock:
        caches = list(_caches)
    for cache in caches:
        cache.clear()


register_cache(_clear_all_caches)  # a user who is erased takes their keys along, at once
