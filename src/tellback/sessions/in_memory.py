"""`InMemoryAdapter`: sessions in the memory of this process."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypedDict

from tellback.errors import NotFoundError, SessionConflictError
from tellback.sessions import records, validation
from tellback.sessions.records import count_messages, merge_turn
from tellback.types.conversations import MessageData, SessionData, SessionStatus

Clock = Callable[[], float]


class InMemorySnapshot(TypedDict):
    """All that an `InMemoryAdapter` holds."""

    sessions: list[SessionData]
    messages: list[MessageData]


@dataclass(slots=True)
class _StoredSession:
    """What is held of a session: the session itself, unless it is past its time, and its messages with theirs."""

    session: SessionData | None = None
    expires_at: float | None = None
    messages: list[tuple[MessageData, float | None]] = field(default_factory=list)


@dataclass(slots=True)
class _InMemoryStorage:
    """Sessions by id, and what tells the time."""

    session_ttl: float | None
    message_ttl: float | None
    clock: Clock
    entries: dict[str, _StoredSession] = field(default_factory=dict)

    def live_entry(self, session_id: str) -> _StoredSession:
        """What is held of a session, without what is past its time."""
        entry = self.entries.get(session_id) or _StoredSession()
        now = self.clock()
        if entry.expires_at is not None and entry.expires_at <= now:
            entry.session, entry.expires_at = None, None
        if self.message_ttl is not None:
            entry.messages = [each for each in entry.messages if each[1] is None or each[1] > now]
        return entry

    def count(self) -> int:
        """How many sessions and messages are held, past their time or not."""
        return sum((entry.session is not None) + len(entry.messages) for entry in self.entries.values())

    def put(self, session: SessionData, messages: Sequence[MessageData] = ()) -> list[MessageData]:
        """Keep a session, and append messages to it."""
        entry, now = self.live_entry(session.id), self.clock()
        entry.session = session
        entry.expires_at = None if self.session_ttl is None else now + self.session_ttl
        message_expires_at = None if self.message_ttl is None else now + self.message_ttl
        # Those that were counted may be past their time: their positions are not given again.
        last = max(entry.messages[-1][0].position if entry.messages else 0, session.message_count - len(messages))
        positioned = [replace(copy.deepcopy(each), position=last + n) for n, each in enumerate(messages, start=1)]
        entry.messages.extend((each, message_expires_at) for each in positioned)
        self.entries[session.id] = entry
        return positioned


class _InMemorySessions:
    def __init__(self, storage: _InMemoryStorage) -> None:
        self._storage = storage

    async def create(self, session: SessionData) -> SessionData:
        records.encode_session(session)
        found = self._storage.live_entry(session.id).session
        if found is not None:
            raise SessionConflictError(session.id, 0, found.version)
        self._storage.put(copy.deepcopy(session))
        return copy.deepcopy(session)

    async def get(self, session_id: str) -> SessionData | None:
        return copy.deepcopy(self._storage.live_entry(validation.validate_id("session_id", session_id)).session)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        validation.validate_optional_id("agent_name", agent_name)
        found = await self.list_by_user(user_id)
        matching = (each for each in found if agent_name is None or each.agent_name == agent_name)
        return next((each for each in matching if each.status == "active"), None)

    async def list_by_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        validation.validate_id("user_id", user_id)
        max_count = validation.validate_limit(limit)
        sessions = (self._storage.live_entry(id).session for id in list(self._storage.entries))
        found = [each for each in sessions if each is not None and each.user_id == user_id]
        if before is not None:
            found = [each for each in found if _sort_key(each) < _sort_key(before)]
        return copy.deepcopy(sorted(found, key=_sort_key, reverse=True)[:max_count])

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        validation.validate_status(status)
        validation.validate_times(at=at, completed_at=completed_at)
        found = self._storage.live_entry(validation.validate_id("session_id", session_id)).session
        if found is None:
            return None
        self._storage.put(replace(found, status=status, completed_at=completed_at, updated_at=at))
        return await self.get(session_id)

    async def delete(self, session_id: str) -> bool:
        was_there = self._storage.live_entry(validation.validate_id("session_id", session_id)).session is not None
        self._storage.entries.pop(session_id, None)
        return was_there


class _InMemoryMessages:
    def __init__(self, storage: _InMemoryStorage) -> None:
        self._storage = storage

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        found = _validate_and_encode(messages)
        validation.validate_times(at=at)
        if not found:
            return []
        session = self._storage.live_entry(found[0].session_id).session
        if session is None:
            raise NotFoundError("session", found[0].session_id)
        positioned = self._storage.put(count_messages(session, found, at), found)
        return copy.deepcopy(positioned)

    async def list_by_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        validation.validate_id("session_id", session_id)
        max_count = validation.validate_limit(limit)
        before_position, after_position = (
            validation.validate_position("before", before),
            validation.validate_position("after", after),
        )
        found = [
            each
            for each, _ in self._storage.live_entry(session_id).messages
            if (before_position is None or each.position < before_position)
            and (after_position is None or each.position > after_position)
        ]
        return copy.deepcopy(found[-max_count:] if after_position is None else found[:max_count])


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
        self._storage = _InMemoryStorage(
            validation.to_ttl_seconds("session_ttl", session_ttl),
            validation.to_ttl_seconds("message_ttl", message_ttl),
            clock,
        )
        self.session_repository = _InMemorySessions(self._storage)
        self.message_repository = _InMemoryMessages(self._storage)

    async def initialize(self) -> None:
        """There is nothing to make."""

    async def disconnect(self) -> None:
        """There is nothing to give up: what it holds stays."""

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn."""
        records.encode_session(session)
        new = _validate_and_encode(messages, session.id)
        saved = merge_turn(self._storage.live_entry(session.id).session, session, new)
        self._storage.put(copy.deepcopy(saved), new)
        return copy.deepcopy(saved)

    async def purge_expired(self) -> int:
        """Drop what is past its time."""
        before = self._storage.count()
        for id in list(self._storage.entries):
            entry = self._storage.live_entry(id)
            if entry.session is None and not entry.messages:
                del self._storage.entries[id]
        return before - self._storage.count()

    def clear(self) -> None:
        """Forget all of it."""
        self._storage.entries.clear()

    def snapshot(self) -> InMemorySnapshot:
        """All that it holds, by session in the order they were stored."""
        entries = [self._storage.live_entry(id) for id in self._storage.entries]
        return {
            "sessions": copy.deepcopy([each.session for each in entries if each.session is not None]),
            "messages": copy.deepcopy([message for each in entries for message, _ in each.messages]),
        }


def _validate_and_encode(messages: Sequence[MessageData], session_id: str | None = None) -> list[MessageData]:
    found = validation.validate_messages(messages, session_id)
    for each in found:
        records.encode_message(each)  # what no database could keep is not kept here either
    return found


def _sort_key(session: SessionData) -> tuple[datetime, str]:
    return session.created_at, session.id
