"""`InMemoryAdapter`: sessions in this process's memory."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypedDict

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores.sessions import checks, given
from tellback.stores.sessions.saving import after_turn, counted
from tellback.types.sessions import MessageData, SessionData, SessionStatus

Clock = Callable[[], float]


class Snapshot(TypedDict):
    """All that an `InMemoryAdapter` holds."""

    sessions: list[SessionData]
    messages: list[MessageData]


@dataclass(slots=True)
class _Held:
    """What is held of a session: the session itself, unless it is past its time, and its messages with theirs."""

    session: SessionData | None = None
    until: float | None = None
    messages: list[tuple[MessageData, float | None]] = field(default_factory=list)


@dataclass(slots=True)
class _Storage:
    """Sessions by id, and what tells the time."""

    session_ttl: float | None
    message_ttl: float | None
    clock: Clock
    held: dict[str, _Held] = field(default_factory=dict)

    def of(self, session_id: str) -> _Held:
        """What is held of a session, without what is past its time."""
        held = self.held.get(session_id) or _Held()
        now = self.clock()
        if held.until is not None and held.until <= now:
            held.session, held.until = None, None
        if self.message_ttl is not None:
            held.messages = [each for each in held.messages if each[1] is None or each[1] > now]
        return held

    def count(self) -> int:
        """How many sessions and messages are held, past their time or not."""
        return sum((held.session is not None) + len(held.messages) for held in self.held.values())

    def put(self, session: SessionData, messages: Sequence[MessageData] = ()) -> list[MessageData]:
        """Keep a session, and append messages to it."""
        held, now = self.of(session.id), self.clock()
        held.session = session
        held.until = None if self.session_ttl is None else now + self.session_ttl
        until = None if self.message_ttl is None else now + self.message_ttl
        # Those that were counted may be past their time: their positions are not given again.
        last = max(held.messages[-1][0].position if held.messages else 0, session.message_count - len(messages))
        placed = [replace(copy.deepcopy(each), position=last + n) for n, each in enumerate(messages, start=1)]
        held.messages.extend((each, until) for each in placed)
        self.held[session.id] = held
        return placed


class _Sessions:
    def __init__(self, storage: _Storage) -> None:
        self._storage = storage

    async def create(self, session: SessionData) -> SessionData:
        given.session(session)
        found = self._storage.of(session.id).session
        if found is not None:
            raise SessionConflictError(session.id, 0, found.version)
        self._storage.put(copy.deepcopy(session))
        return copy.deepcopy(session)

    async def get(self, session_id: str) -> SessionData | None:
        return copy.deepcopy(self._storage.of(checks.id_of("session_id", session_id)).session)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        checks.optional_id("agent_name", agent_name)
        found = await self.of_user(user_id)
        wanted = (each for each in found if agent_name is None or each.agent_name == agent_name)
        return next((each for each in wanted if each.status == "active"), None)

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        checks.id_of("user_id", user_id)
        most = checks.limit_of(limit)
        known = (self._storage.of(id).session for id in list(self._storage.held))
        found = [each for each in known if each is not None and each.user_id == user_id]
        if before is not None:
            found = [each for each in found if _order(each) < _order(before)]
        return copy.deepcopy(sorted(found, key=_order, reverse=True)[:most])

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        checks.status(status)
        checks.moments(at=at, completed_at=completed_at)
        found = self._storage.of(checks.id_of("session_id", session_id)).session
        if found is None:
            return None
        self._storage.put(replace(found, status=status, completed_at=completed_at, updated_at=at))
        return await self.get(session_id)

    async def delete(self, session_id: str) -> bool:
        was_there = self._storage.of(checks.id_of("session_id", session_id)).session is not None
        self._storage.held.pop(session_id, None)
        return was_there


class _Messages:
    def __init__(self, storage: _Storage) -> None:
        self._storage = storage

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        found = _checked(messages)
        checks.moments(at=at)
        if not found:
            return []
        session = self._storage.of(found[0].session_id).session
        if session is None:
            raise NotFoundError("session", found[0].session_id)
        placed = self._storage.put(counted(session, found, at), found)
        return copy.deepcopy(placed)

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        checks.id_of("session_id", session_id)
        most = checks.limit_of(limit)
        until, since = checks.position_of("before", before), checks.position_of("after", after)
        found = [
            each
            for each, _ in self._storage.of(session_id).messages
            if (until is None or each.position < until) and (since is None or each.position > since)
        ]
        return copy.deepcopy(found[-most:] if since is None else found[:most])


class InMemoryAdapter:
    """Sessions in this process's memory, for tests and for agents that need not outlive it.

    >>> import asyncio
    >>> adapter = InMemoryAdapter()
    >>> asyncio.run(adapter.session_repository.create(SessionData("web-42"))).version
    0
    >>> [session.id for session in adapter.snapshot()["sessions"]]
    ['web-42']
    """

    def __init__(
        self,
        *,
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._storage = _Storage(checks.ttl("session_ttl", session_ttl), checks.ttl("message_ttl", message_ttl), clock)
        self.session_repository = _Sessions(self._storage)
        self.message_repository = _Messages(self._storage)

    async def initialize(self) -> None:
        """There is nothing to make."""

    async def disconnect(self) -> None:
        """There is nothing to give up: what it holds stays."""

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn."""
        given.session(session)
        new = _checked(messages, session.id)
        saved = after_turn(self._storage.of(session.id).session, session, new)
        self._storage.put(copy.deepcopy(saved), new)
        return copy.deepcopy(saved)

    async def purge_expired(self) -> int:
        """Drop what is past its time."""
        before = self._storage.count()
        for id in list(self._storage.held):
            held = self._storage.of(id)
            if held.session is None and not held.messages:
                del self._storage.held[id]
        return before - self._storage.count()

    def clear(self) -> None:
        """Forget all of it."""
        self._storage.held.clear()

    def snapshot(self) -> Snapshot:
        """All that it holds, by session in the order they were stored."""
        held = [self._storage.of(id) for id in self._storage.held]
        return {
            "sessions": copy.deepcopy([each.session for each in held if each.session is not None]),
            "messages": copy.deepcopy([message for each in held for message, _ in each.messages]),
        }


def _checked(messages: Sequence[MessageData], session_id: str | None = None) -> list[MessageData]:
    found = checks.messages(messages, session_id)
    for each in found:
        given.message(each)  # what no database could keep is not kept here either
    return found


def _order(session: SessionData) -> tuple[datetime, str]:
    return session.created_at, session.id
