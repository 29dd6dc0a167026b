"""The spaces held in this process: as many as fit, each brought up to date before it is used."""

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
from tellback.stores import Memories, Search, SpaceChanges, memory_rows
from tellback.stores.ports.admin import erased_subject
from tellback.types.scope import Scope

if TYPE_CHECKING:
    from tellback.memory.recall.index import WordVectors
    from tellback.memory.view import SpaceView

Finding = Callable[[], Awaitable[Search]]
"""What to look for in a space that is too large to be held; asked for only where one is."""

DEFAULT_BYTES = 256 * 1024 * 1024
DEFAULT_ATOMS = 50_000
INLINE_ATOMS = 200
INLINE_CHARACTERS = 50_000
"""So many are taken in at once; more of them in a thread, so that nobody else has to wait."""


class _Held:
    """A space that is held, and the lock of whoever uses it."""

    __slots__ = ("counted", "lock", "nbytes", "view")

    def __init__(self, view: SpaceView) -> None:
        self.view = view
        self.lock = asyncio.Lock()
        self.nbytes = 0
        self.counted = -1


class _Home:
    """What is held for one event loop, and how much memory it takes."""

    __slots__ = ("__weakref__", "held", "nbytes")

    def __init__(self) -> None:
        self.held: OrderedDict[tuple[Scope, str], _Held] = OrderedDict()
        self.nbytes = 0

    def forget(self, scope: Scope, space_id: str) -> None:
        held = self.held.pop((scope, space_id), None)
        if held is not None:
            self.nbytes -= held.nbytes

    def forget_erased(self, subjects: Collection[str]) -> None:
        erased = {scope for scope in {scope for scope, _ in self.held} if erased_subject(scope) in subjects}
        for scope, space_id in [key for key in self.held if key[0] in erased]:
            self.forget(scope, space_id)


class SpaceViews:
    """Spaces by scope and id, the least recently used forgotten first when they take more than `limit` bytes.

    Of a space with more than `most` atoms, only what a search finds is looked at, if the store can search. Every event
    loop holds its own: they may run in threads of their own. `ordered` is for the index.
    """

    def __init__(
        self,
        memories: Memories,
        embedder: str,
        words: WordVectors | None,
        limit: int = DEFAULT_BYTES,
        most: int = DEFAULT_ATOMS,
        *,
        ordered: bool = False,
    ) -> None:
        self._memories = memories
        self._embedder = embedder
        self._words = words
        self._limit = limit
        self._most = most if memories.can_find else None
        self._ordered = ordered
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Home] = WeakKeyDictionary()
        self._moving_in = threading.Lock()

    def __len__(self) -> int:
        return sum(len(home.held) for home in list(self._homes.values()))

    @property
    def nbytes(self) -> int:
        """About how much memory they take together."""
        return sum(home.nbytes for home in list(self._homes.values()))

    @asynccontextmanager
    async def use(self, scope: Scope, space_id: str, search: Finding) -> AsyncIterator[SpaceView]:
        """A space as it is now, which nobody changes until the block ends; of one too large, what was found in it."""
        held = self._hold(scope, space_id)
        async with held.lock:
            view = held.view
            try:
                if view.version != await self._memories.version(scope, space_id):
                    view = await self._caught_up(held, scope, space_id, search)
            except BaseException as error:
                if held.view.version < 0 or isinstance(error, NotFoundError):
                    self.forget(scope, space_id)  # nothing is in it, or it is gone
                raise
            try:
                yield view
            finally:
                self._settle(scope, space_id, held)

    async def _caught_up(self, held: _Held, scope: Scope, space_id: str, search: Finding) -> SpaceView:
        view = held.view
        changes = await self._memories.changes(
            scope, space_id, after=view.version, embedder=self._embedder, most=self._most
        )
        if self._most is not None and changes.last_seq > self._most:
            self.forget(scope, space_id)
            view = self._new_view()
            changes = await self._memories.find(scope, space_id, await search())
        try:
            await _apply(view, changes)
        except BaseException:
            held.view = self._new_view()  # it may be half taken in: whoever waits for it begins anew
            raise
        return view

    def forget(self, scope: Scope, space_id: str) -> None:
        """Hold it no longer."""
        self._home().forget(scope, space_id)

    def forget_erased(self, subjects: Collection[str]) -> None:
        """Hold nothing more of users who were erased, in any loop; `subjects` is what the events tell."""
        here = asyncio.get_running_loop()
        for loop, home in list(self._homes.items()):
            if loop is here:
                home.forget_erased(subjects)
                continue
            with contextlib.suppress(RuntimeError):  # that loop is closed, and nobody uses what it held
                loop.call_soon_threadsafe(home.forget_erased, subjects)

    def clear(self) -> None:
        """Hold nothing."""
        self._homes.clear()

    def _home(self) -> _Home:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None:
            with self._moving_in:
                home = self._homes.setdefault(loop, _Home())
        return home

    def _hold(self, scope: Scope, space_id: str) -> _Held:
        spaces = self._home().held
        held = spaces.get((scope, space_id))
        if held is None:
            held = spaces[scope, space_id] = _Held(self._new_view())
        spaces.move_to_end((scope, space_id))
        return held

    def _new_view(self) -> SpaceView:
        from tellback.memory.view import SpaceView

        return SpaceView(self._words, ordered=self._ordered)

    def _settle(self, scope: Scope, space_id: str, held: _Held) -> None:
        """Count what it takes now, and make room; the one just used stays, however large."""
        home = self._home()
        if held.counted == held.view.version or home.held.get((scope, space_id)) is not held:
            return
        held.counted = held.view.version
        nbytes = held.view.nbytes
        home.nbytes += nbytes - held.nbytes
        held.nbytes = nbytes
        while home.nbytes > self._limit and len(home.held) > 1:
            oldest = next(iter(home.held))
            if oldest == (scope, space_id):
                break
            self.forget(*oldest)


async def _apply(view: SpaceView, changes: SpaceChanges) -> None:
    few = len(changes.atoms) + len(changes.vectors) <= INLINE_ATOMS
    if few and sum(len(row[memory_rows.TEXT]) for row in changes.atoms) <= INLINE_CHARACTERS:
        view.apply(changes)
        return
    # Cancelled meanwhile, the thread goes on: wait for it, so that nobody does the same beside it.
    work = asyncio.ensure_future(asyncio.to_thread(view.apply, changes))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
