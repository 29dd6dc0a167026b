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
from tellback.types.caches import forgets

MOST_FOUND = 10_000
MOST_MISSING = 1_000
"""How many are held at most: keys, and ids that no key has, which must not drive out keys."""

Load = Callable[[str], Awaitable[StoredKey | None]]


@dataclass(frozen=True, slots=True)
class _Held:
    stored: StoredKey | None
    until: float


class HeldKeys:
    """Keys by id, each held for some seconds; the least recently used are forgotten first.

    Those who ask for one key at the same time wait for one look-up. What was read before a `forget` is not held after
    it, nor given to anyone who asks later.
    """

    def __init__(self, load: Load, hold_seconds: float, timer: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._hold_seconds = hold_seconds
        self._timer = timer
        self._found: OrderedDict[str, _Held] = OrderedDict()
        self._missing: OrderedDict[str, _Held] = OrderedDict()
        self._loading: dict[tuple[asyncio.AbstractEventLoop, str, int], asyncio.Task[StoredKey | None]] = {}
        self._changes = 0
        with _lock:
            _opened.add(self)

    def __len__(self) -> int:
        return len(self._found) + len(self._missing)

    async def get(self, id: str) -> StoredKey | None:
        """The key of that id as it was some seconds ago at most."""
        for kept in (self._found, self._missing):
            held = kept.get(id)
            if held is not None and self._timer() < held.until:
                kept.move_to_end(id)
                return held.stored
        asked = (asyncio.get_running_loop(), id, self._changes)
        task = self._loading.get(asked)
        if task is None:
            task = self._loading[asked] = asyncio.create_task(self._look_up(id))
            task.add_done_callback(lambda done: self._ended(asked, done))
        return await asyncio.shield(task)  # whoever gives up does so alone

    def forget(self, id: str) -> None:
        """Look this one up again."""
        self._changes += 1
        self._found.pop(id, None)
        self._missing.pop(id, None)

    def clear(self) -> None:
        """Look all of them up again."""
        self._changes += 1
        # New ones: another thread may erase a user while this one looks.
        self._found, self._missing = OrderedDict(), OrderedDict()

    async def _look_up(self, id: str) -> StoredKey | None:
        changes, until = self._changes, self._timer() + self._hold_seconds
        stored = await self._load(id)
        if changes == self._changes:
            self._hold(id, _Held(stored, until))
        return stored

    def _hold(self, id: str, held: _Held) -> None:
        self._found.pop(id, None)
        self._missing.pop(id, None)
        kept, most = (self._missing, MOST_MISSING) if held.stored is None else (self._found, MOST_FOUND)
        kept[id] = held
        if len(kept) > most:
            kept.popitem(last=False)

    def _ended(self, asked: tuple[asyncio.AbstractEventLoop, str, int], task: asyncio.Task[StoredKey | None]) -> None:
        self._loading.pop(asked, None)
        if not task.cancelled():
            task.exception()  # heard, also if everyone who waited has gone


_opened: WeakSet[HeldKeys] = WeakSet()
_lock = threading.Lock()


def _clear_all() -> None:
    with _lock:
        opened = list(_opened)
    for held in opened:
        held.clear()


forgets(_clear_all)  # a user who is erased takes their keys along, at once
