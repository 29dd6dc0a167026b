"""`InMemoryAdapter`: sessions in the memory of this process."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypedDict

from tellback.errors import NotFoundError, SessionConflictError
from tellback.sessions import records, validation
from tellback.sessions.records import count_messages, merge_turn
from tellback.sessions.storage import StorageAdapter, Ttl, resolve_ttls
from tellback.types.conversations import MessageData, SessionData, SessionStatus

Clock = Callable[[], float]


class InMemorySnapshot(TypedDict):
    """All data of an `InMemoryAdapter`."""

    sessions: list[SessionData]
    messages: list[MessageData]


@dataclass(slots=True)
class _StoredSession:
    """A session, or None if it has expired, and its messages with their expiry times."""

    session: SessionData | None = None
    expires_at: float = math.inf
    messages: list[tuple[MessageData, float]] = field(default_factory=list)


class _InMemoryStorage:
    """Sessions by id, and a clock."""

    def __init__(self, session_ttl: float | None, message_ttl: float | None, clock: Clock) -> None:
        self._session_ttl = session_ttl or math.inf
        self._message_ttl = message_ttl or math.inf
        self._clock = clock
        self.entries: dict[str, _StoredSession] = {}

    def live_entry(self, session_id: str) -> _StoredSession:
        """Return a session's entry without expired data."""
        entry = self.entries.get(session_id) or _StoredSession()
        now = self._clock()
        if entry.expires_at <= now:
            entry.session, entry.expires_at = None, math.inf
        if self._message_ttl < math.inf:
            entry.messages = [each for each in entry.messages if each[1] > now]
        return entry

    async def initialize(self) -> None:
        """Do nothing: memory needs no setup."""

    async def disconnect(self) -> None:
        """Do nothing: the data stays in memory."""

    async def create(self, session: SessionData) -> SessionData:
        records.encode_valid_session(session)
        found = self.live_entry(session.id).session
        if found is not None:
            raise SessionConflictError(session.id, 0, found.version)
        self._put(copy.deepcopy(session))
        return copy.deepcopy(session)

    async def get(self, session_id: str) -> SessionData | None:
        return copy.deepcopy(self.live_entry(session_id).session)

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None:
        found = await self.list_by_user(user_id, validation.MAX_LIMIT, None)
        matching = (each for each in found if agent_name is None or each.agent_name == agent_name)
        return next((each for each in matching if each.status == "active"), None)

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        sessions = (self.live_entry(id).session for id in list(self.entries))
        found = [each for each in sessions if each is not None and each.user_id == user_id]
        if before is not None:
            found = [each for each in found if _sort_key(each) < _sort_key(before)]
        return copy.deepcopy(sorted(found, key=_sort_key, reverse=True)[:limit])

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        found = self.live_entry(session_id).session
        if found is None:
            return None
        self._put(replace(found, status=status, completed_at=completed_at, updated_at=at))
        return await self.get(session_id)

    async def delete(self, session_id: str) -> bool:
        was_there = self.live_entry(session_id).session is not None
        self.entries.pop(session_id, None)
        return was_there

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        records.encode_valid_session(session)
        _refuse_unstorable(messages)
        saved = merge_turn(self.live_entry(session.id).session, session, messages)
        self._put(copy.deepcopy(saved), messages)
        return copy.deepcopy(saved)

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]:
        _refuse_unstorable(messages)
        session = self.live_entry(messages[0].session_id).session
        if session is None:
            raise NotFoundError("session", messages[0].session_id)
        return copy.deepcopy(self._put(count_messages(session, messages, at), messages))

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        found = [
            each
            for each, _ in self.live_entry(session_id).messages
            if (before is None or each.position < before) and (after is None or each.position > after)
        ]
        return copy.deepcopy(found[-limit:] if after is None else found[:limit])

    async def purge_expired(self) -> int:
        before = self._count()
        for id in list(self.entries):
            entry = self.live_entry(id)
            if entry.session is None and not entry.messages:
                del self.entries[id]
        return before - self._count()

    def _count(self) -> int:
        """Return how many sessions and messages are stored, expired or not."""
        return sum((entry.session is not None) + len(entry.messages) for entry in self.entries.values())

    def _put(self, session: SessionData, messages: Sequence[MessageData] = ()) -> list[MessageData]:
        """Store a session, and append messages to it."""
        entry, now = self.live_entry(session.id), self._clock()
        entry.session = session
        entry.expires_at = now + self._session_ttl
        # Continue after the counted messages, even if they have expired: positions are never reused.
        last = max(entry.messages[-1][0].position if entry.messages else 0, session.message_count - len(messages))
        positioned = [replace(copy.deepcopy(each), position=last + n) for n, each in enumerate(messages, start=1)]
        entry.messages.extend((each, now + self._message_ttl) for each in positioned)
        self.entries[session.id] = entry
        return positioned


class InMemoryAdapter(StorageAdapter):
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
        session_ttl: Ttl = None,
        message_ttl: Ttl = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._sessions = _InMemoryStorage(*resolve_ttls(session_ttl, message_ttl), clock)
        super().__init__(self._sessions)

    def clear(self) -> None:
        """Delete all data."""
        self._sessions.entries.clear()

    def snapshot(self) -> InMemorySnapshot:
        """Return all sessions, and all messages grouped by session, in the order in which they were stored."""
        entries = [self._sessions.live_entry(id) for id in self._sessions.entries]
        return {
            "sessions": copy.deepcopy([each.session for each in entries if each.session is not None]),
            "messages": copy.deepcopy([message for each in entries for message, _ in each.messages]),
        }


def _refuse_unstorable(messages: Sequence[MessageData]) -> None:
    for each in messages:
        records.encode_message(each)  # reject what a database could not store


def _sort_key(session: SessionData) -> tuple[datetime, str]:
    return session.created_at, session.id
