"""The sessions and the messages of an `OpenSearchAdapter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.stores.sessions import checks
from tellback.stores.sessions.opensearch.documents import Held, Layout, now_millis
from tellback.stores.sessions.opensearch.keeper import Keeper
from tellback.stores.sessions.opensearch.link import Link
from tellback.stores.sessions.opensearch.reading import messages_of
from tellback.stores.sessions.opensearch.searching import Searcher
from tellback.stores.sessions.saving import counted
from tellback.types.sessions import MessageData, SessionData, SessionStatus


@dataclass(frozen=True, slots=True)
class Open:
    """What an adapter works with while it is initialized."""

    link: Link
    keeper: Keeper
    searcher: Searcher


class Sessions:
    """Sessions, by their ids and by whose they are."""

    def __init__(self, opened: Callable[[], Open], layout: Layout) -> None:
        self._opened = opened
        self._layout = layout

    async def create(self, session: SessionData) -> SessionData:
        checks.session(session)

        def decide(held: Held | None, now: int) -> Held:
            found = None if held is None else held.living(now)
            if found is not None:
                raise SessionConflictError(session.id, 0, found.version)
            return self._layout.stored(held, session.id, session, (), now)

        return self._layout.given_back(await self._opened().keeper.change(session.id, decide))

    async def get(self, session_id: str) -> SessionData | None:
        found = await self._opened().keeper.find(checks.id_of("session_id", session_id))
        return None if found is None else found.held.living(now_millis())

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        wanted = {"user_id": checks.id_of("user_id", user_id), "status": "active"}
        if checks.optional_id("agent_name", agent_name) is not None:
            wanted["agent_name"] = str(agent_name)
        found = await self._opened().searcher.sessions(wanted, 1)
        return found[0] if found else None

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        wanted = {"user_id": checks.id_of("user_id", user_id)}
        most = checks.limit_of(limit)
        if before is not None:
            if not isinstance(before, SessionData):
                raise InvalidArgumentError(f"before is a SessionData, not {before!r:.80}.")
            checks.id_of("the id of before", before.id)
        return await self._opened().searcher.sessions(wanted, most, before)

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        checks.status(status)
        checks.id_of("session_id", session_id)
        checks.moments(at=at, completed_at=completed_at)

        def decide(held: Held | None, now: int) -> Held | None:
            found = None if held is None else held.living(now)
            if found is None:
                return None
            changed = replace(found, status=status, completed_at=completed_at, updated_at=at)
            return self._layout.stored(held, session_id, changed, (), now)

        changed = await self._opened().keeper.change(session_id, decide)
        return None if changed is None else self._layout.given_back(changed)

    async def delete(self, session_id: str) -> bool:
        checks.id_of("session_id", session_id)
        was_there = False

        def decide(held: Held | None, now: int) -> Held | None:
            nonlocal was_there
            if held is None:
                return None
            was_there = held.living(now) is not None
            return Held(session_id, deleted=True, life=held.life, last=held.last, writes=held.writes)

        await self._opened().keeper.change(session_id, decide)
        return was_there


class Messages:
    """Messages of those sessions, by their positions."""

    def __init__(self, opened: Callable[[], Open], layout: Layout) -> None:
        self._opened = opened
        self._layout = layout

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        new = checks.messages(messages)
        checks.moments(at=at)
        keeper = self._opened().keeper
        if not new:
            return []
        id = new[0].session_id

        def decide(held: Held | None, now: int) -> Held:
            found = None if held is None else held.living(now)
            if found is None:
                raise NotFoundError("session", id)
            return self._layout.stored(held, id, counted(found, new, at), new, now)

        held = await keeper.change(id, decide)
        assert held is not None
        return [self._layout.message_of(each) for each in held.pending]

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        checks.id_of("session_id", session_id)
        most = checks.limit_of(limit)
        until, since = checks.position_of("before", before), checks.position_of("after", after)
        found = await messages_of(self._opened().keeper, session_id, most, until, since)
        return [self._layout.message_of(each) for each in found]
