"""The sessions and the messages of an `OpenSearchAdapter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.stores.sessions import checks
from tellback.stores.sessions.opensearch.documents import DocumentLayout, SessionEntry, now_millis
from tellback.stores.sessions.opensearch.keeper import DocumentStore
from tellback.stores.sessions.opensearch.link import OpenSearchConnection
from tellback.stores.sessions.opensearch.reading import read_messages
from tellback.stores.sessions.opensearch.searching import Searcher
from tellback.stores.sessions.saving import count_messages
from tellback.types.sessions import MessageData, SessionData, SessionStatus


@dataclass(frozen=True, slots=True)
class OpenResources:
    """What an adapter works with while it is initialized."""

    connection: OpenSearchConnection
    store: DocumentStore
    searcher: Searcher


class OpenSearchSessions:
    """Sessions, by their ids and by whose they are."""

    def __init__(self, require_open: Callable[[], OpenResources], layout: DocumentLayout) -> None:
        self._require_open = require_open
        self._layout = layout

    async def create(self, session: SessionData) -> SessionData:
        checks.validate_session(session)

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry:
            found = None if entry is None else entry.live_session(now)
            if found is not None:
                raise SessionConflictError(session.id, 0, found.version)
            return self._layout.store_turn(entry, session.id, session, (), now)

        return self._layout.read_back(await self._require_open().store.change(session.id, decide))

    async def get(self, session_id: str) -> SessionData | None:
        found = await self._require_open().store.find(checks.validate_id("session_id", session_id))
        return None if found is None else found.entry.live_session(now_millis())

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        terms = {"user_id": checks.validate_id("user_id", user_id), "status": "active"}
        if checks.validate_optional_id("agent_name", agent_name) is not None:
            terms["agent_name"] = str(agent_name)
        found = await self._require_open().searcher.find_sessions(terms, 1)
        return found[0] if found else None

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        terms = {"user_id": checks.validate_id("user_id", user_id)}
        max_count = checks.validate_limit(limit)
        if before is not None:
            if not isinstance(before, SessionData):
                raise InvalidArgumentError(f"before is a SessionData, not {before!r:.80}.")
            checks.validate_id("the id of before", before.id)
        return await self._require_open().searcher.find_sessions(terms, max_count, before)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        checks.validate_status(status)
        checks.validate_id("session_id", session_id)
        checks.validate_times(at=at, completed_at=completed_at)

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry | None:
            found = None if entry is None else entry.live_session(now)
            if found is None:
                return None
            changed = replace(found, status=status, completed_at=completed_at, updated_at=at)
            return self._layout.store_turn(entry, session_id, changed, (), now)

        changed = await self._require_open().store.change(session_id, decide)
        return None if changed is None else self._layout.read_back(changed)

    async def delete(self, session_id: str) -> bool:
        checks.validate_id("session_id", session_id)
        was_there = False

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry | None:
            nonlocal was_there
            if entry is None:
                return None
            was_there = entry.live_session(now) is not None
            return SessionEntry(session_id, deleted=True, life=entry.life, last=entry.last, writes=entry.writes)

        await self._require_open().store.change(session_id, decide)
        return was_there


class OpenSearchMessages:
    """Messages of those sessions, by their positions."""

    def __init__(self, require_open: Callable[[], OpenResources], layout: DocumentLayout) -> None:
        self._require_open = require_open
        self._layout = layout

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = checks.validate_messages(messages)
        checks.validate_times(at=at)
        store = self._require_open().store
        if not validated:
            return []
        id = validated[0].session_id

        def decide(entry: SessionEntry | None, now: int) -> SessionEntry:
            found = None if entry is None else entry.live_session(now)
            if found is None:
                raise NotFoundError("session", id)
            return self._layout.store_turn(entry, id, count_messages(found, validated, at), validated, now)

        entry = await store.change(id, decide)
        assert entry is not None
        return [self._layout.message_from_document(each) for each in entry.pending]

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        checks.validate_id("session_id", session_id)
        max_count = checks.validate_limit(limit)
        before_position, after_position = (
            checks.validate_position("before", before),
            checks.validate_position("after", after),
        )
        found = await read_messages(self._require_open().store, session_id, max_count, before_position, after_position)
        return [self._layout.message_from_document(each) for each in found]
