"""The feed of changes for many clients at once: the store is read once for all of them.

What was read last is held for those who come back after a short while. Whoever comes from further back, or reads too
slowly to be waited for, is served from the store.
"""

from __future__ import annotations

import asyncio
import bisect
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Any

from pydantic_core import to_json

from tellback.app import Tellback
from tellback.background import stopped
from tellback.errors import (
    NotAuthenticatedError,
    StoreBusyError,
    StoreClosedError,
    StoreFullError,
    StoreUnavailableError,
)
from tellback.server.sse import frame
from tellback.server.stopping import Stopping
from tellback.stores.ports.admin import ERASED, erased_subject
from tellback.types.conversations import Event
from tellback.types.scope import Scope
from tellback.wire.events import DATA

log = logging.getLogger("tellback.server")

HELD = 2_000
"""How many of the last events are held."""
WAITING = 1_000
"""How many may wait for one client, before it is served from the store instead."""
BATCH = 500
CHECK_SECONDS = 30.0
"""How often it is looked whether a client's credential still holds."""
RETRY_SECONDS = 1.0
UNREACHABLE = (StoreUnavailableError, StoreBusyError, StoreFullError)
"""What passes: it is tried again."""

Whose = tuple[str, str, str | None]
"""A tenant, an app, and a user or None for all of them."""


class _Change:
    """An event; it is encoded once for all who are sent it."""

    __slots__ = ("_frame", "event", "position")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.position = event.position
        self._frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        if self._frame is None:
            self._frame = event_frame(self.event)
        return self._frame

    def is_of(self, whose: Whose) -> bool:
        tenant_id, app_id, user_id = whose
        scope = self.event.scope
        return scope.tenant_id == tenant_id and scope.app_id == app_id and user_id in (None, scope.user_id)


class _Erased:
    """Whose data was erased. The event tells a digest of whom, which is that of one user of its tenant and app."""

    def __init__(self, event: Event) -> None:
        self._event = event
        self._known: dict[Scope, bool] = {}

    def has(self, change: _Change) -> bool:
        """Whether a change is that user's."""
        scope, told = change.event.scope, self._event
        if (scope.tenant_id, scope.app_id) != (told.scope.tenant_id, told.scope.app_id):
            return False
        if scope not in self._known:
            self._known[scope] = erased_subject(scope) == told.subject_id
        return self._known[scope]


class _Follower:
    """What waits for one client. `is_behind` says that some of it is only in the store."""

    def __init__(self, whose: Whose, types: frozenset[str] | None) -> None:
        self.whose = whose
        self._types = types
        self.waiting: deque[_Change] = deque()
        self.is_behind = False
        self.news = asyncio.Event()

    def begin_with(self, held: list[_Change] | None) -> None:
        """Let this wait, with which what waits now is over again; None if only the store has it."""
        self.waiting.clear()
        self.is_behind = held is None
        for change in held or ():
            if change.is_of(self.whose):
                self.offer(change)

    def forget(self, erased: _Erased) -> None:
        """Let nothing of an erased user wait."""
        self.waiting = deque(change for change in self.waiting if not erased.has(change))

    def offer(self, change: _Change) -> None:
        if self.is_behind or (self._types is not None and change.event.type not in self._types):
            return
        if len(self.waiting) < WAITING:
            self.waiting.append(change)
        else:  # the store has it, and what waits too
            self.waiting.clear()
            self.is_behind = True
        self.news.set()


class _Reading:
    """One subscription to the store's events, and those who follow it."""

    def __init__(self, rc: Tellback, latest: int) -> None:
        self._followers: dict[Whose, set[_Follower]] = {}
        self._held: deque[_Change] = deque()
        self._floor = latest  # everything after it, as far as it was read, is held
        self.reached = latest
        self.is_over = False
        self.error: Exception | None = None
        self._task = asyncio.create_task(self._read(rc), name="tellback feed")

    def join(self, follower: _Follower) -> None:
        self._followers.setdefault(follower.whose, set()).add(follower)

    def leave(self, follower: _Follower) -> bool:
        """Whether nobody is left."""
        group = self._followers.get(follower.whose, set())
        group.discard(follower)
        if not group:
            self._followers.pop(follower.whose, None)
        return not self._followers

    def held_after(self, position: int) -> list[_Change] | None:
        """What came after a position, or None if that is not held any more."""
        if position < self._floor:
            return None
        start = bisect.bisect_right(self._held, position, key=lambda change: change.position)
        return [self._held[n] for n in range(start, len(self._held))]

    def end(self, error: Exception | None = None) -> None:
        """Let everyone go."""
        self.is_over, self.error = True, error
        for group in self._followers.values():
            for follower in group:
                follower.news.set()

    async def close(self) -> None:
        await stopped(self._task)

    async def _read(self, rc: Tellback) -> None:
        try:
            async with aclosing(rc.events.subscribe(after=self.reached)) as events:
                async for event in events:
                    self._take(_Change(event))
        except Exception as error:  # whatever it is, those who follow must learn that nothing comes
            log.exception("the feed of changes failed")
            self.end(error)
        else:
            self.end()

    def _take(self, change: _Change) -> None:
        if change.event.type == ERASED:
            self._forget(_Erased(change.event))
        self._held.append(change)
        if len(self._held) > HELD:
            self._floor = self._held.popleft().position
        self.reached = change.position
        scope = change.event.scope
        for user_id in (scope.user_id, None):
            for follower in self._followers.get((scope.tenant_id, scope.app_id, user_id), ()):
                follower.offer(change)

    def _forget(self, erased: _Erased) -> None:
        """Nothing of an erased user is held, nor waits for anyone: the store has it no more either."""
        self._held = deque(change for change in self._held if not erased.has(change))
        for group in self._followers.values():
            for follower in group:
                follower.forget(erased)


class Feed:
    """The changes of a server's store, for its clients. It reads only while there are some."""

    def __init__(self, rc: Tellback) -> None:
        self._rc = rc
        self._reading: _Reading | None = None
        self._starting = asyncio.Lock()

    @classmethod
    def of(cls, app: Any) -> Feed:
        """The one of an application, in its `state.feed`."""
        found = getattr(app.state, "feed", None)
        if found is None:
            found = app.state.feed = cls(app.state.home.rc)
            Stopping.of(app).tell(found.end)
        assert isinstance(found, Feed)
        return found

    def end(self) -> None:
        """Let every client go: each can go on where it was, with another server."""
        if self._reading is not None:
            self._reading.end()

    async def follow(
        self,
        whose: Whose,
        after: int | None,
        types: Collection[str] | None,
        is_still_valid: Callable[[], Awaitable[bool]],
    ) -> AsyncGenerator[bytes, None]:
        """The frames of events after a position, or from now on; the first one, `ready`, says where that is.

        It ends when the store or the server does, and raises `NotAuthenticatedError` some time after the credential has
        ceased to hold.
        """
        wanted = None if types is None else frozenset(types)
        reading, follower = await self._joined(whose, wanted)
        try:
            position = reading.reached if after is None else after
            if position > reading.reached:  # read elsewhere, or in a log that is there no more: what comes is news then
                position = min(position, await self._rc.events.latest())
            yield frame("ready", b'{"position":%d}' % position, position)
            follower.begin_with(reading.held_after(position))
            validity = Validity(is_still_valid)
            while True:
                if follower.is_behind:
                    follower.begin_with([])
                    until = reading.reached
                    async with aclosing(self._stored(position, whose, wanted)) as batches:
                        async for batch in batches:
                            await validity.check()
                            position = batch[-1].position
                            yield b"".join(map(event_frame, batch))
                    position = max(position, until)
                while follower.waiting:
                    change = follower.waiting.popleft()
                    if change.position > position:
                        position = change.position
                        yield change.frame
                if reading.error is not None:
                    raise reading.error
                if reading.is_over:
                    return
                await validity.check()
                await _news(follower, validity.due)
        finally:
            await self._leave(reading, follower)

    async def _joined(self, whose: Whose, types: frozenset[str] | None) -> tuple[_Reading, _Follower]:
        follower = _Follower(whose, types)
        async with self._starting:
            if self._reading is None or self._reading.is_over:
                self._reading = _Reading(self._rc, await self._rc.events.latest())
            self._reading.join(follower)
            return self._reading, follower

    async def _leave(self, reading: _Reading, follower: _Follower) -> None:
        if reading.leave(follower):
            if self._reading is reading:
                self._reading = None
            await reading.close()

    async def _stored(
        self, after: int, whose: Whose, types: frozenset[str] | None
    ) -> AsyncGenerator[list[Event], None]:
        """What the store has after a position, to its end. While it cannot be reached, it is waited for."""
        tenant_id, app_id, user_id = whose
        while True:
            try:
                found = await self._rc.events.read(
                    after, limit=BATCH, types=types, tenant_id=tenant_id, app_id=app_id, user_id=user_id
                )
            except UNREACHABLE:
                log.warning("events cannot be read now; trying again", exc_info=True)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except StoreClosedError:
                return  # the subscription has ended, or is about to
            if found:
                yield found
            if len(found) < BATCH:
                return
            after = found[-1].position


class Validity:
    """Looks now and then whether the credential of a long stream still holds."""

    def __init__(self, is_still_valid: Callable[[], Awaitable[bool]]) -> None:
        self._is_still_valid = is_still_valid
        self._loop = asyncio.get_running_loop()
        self.due = self._loop.time() + CHECK_SECONDS

    async def check(self) -> None:
        """Raises, if it is time to look and the credential does not hold any more."""
        if self._loop.time() < self.due:
            return
        try:
            holds = await self._is_still_valid()
        except UNREACHABLE:
            holds = True  # nothing can be read meanwhile, and it is looked again
        if not holds:
            raise NotAuthenticatedError("The credential is not valid any more: the stream ends here.")
        self.due = self._loop.time() + CHECK_SECONDS


async def _news(follower: _Follower, until: float) -> None:
    """Wait for news, or until then."""
    try:
        async with asyncio.timeout_at(until):
            await follower.news.wait()
    except TimeoutError:
        return
    follower.news.clear()


def event_frame(event: Event) -> bytes:
    """An event as a frame, whose id is its position: `ChangeWire`, written at a third of what making one costs.

    JSON has no line breaks, and types are ours: there is nothing that `frame` would have to look for.
    """
    scope = event.scope
    told = {
        "position": event.position,
        "type": event.type,
        "tenantId": scope.tenant_id,
        "appId": scope.app_id,
        "userId": scope.user_id,
        "subjectId": event.subject_id,
        "data": DATA.told(event.data),
        "createdAt": event.created_at,
    }
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.position, event.type.encode(), to_json(told))
