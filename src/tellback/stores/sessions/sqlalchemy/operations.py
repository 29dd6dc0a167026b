"""What is done to the two tables, each in one transaction.

Every change begins by writing: that locks the session's row, or all of SQLite, before anything is read.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.base import Executable

from tellback.errors import InvalidArgumentError, NotFoundError, SessionConflictError
from tellback.stores.sessions.records import EXPIRES, message_record, session_record
from tellback.stores.sessions.saving import after_turn
from tellback.stores.sessions.sqlalchemy.tables import Layout, Shelf
from tellback.types.sessions import MessageData, SessionData, SessionStatus
from tellback.types.times import utc_now

T = TypeVar("T")
BATCH = 500


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations on a layout, for rows that live so long."""

    layout: Layout
    session_ttl: float | None
    message_ttl: float | None

    async def get(self, connection: AsyncConnection, session_id: str) -> SessionData | None:
        sessions = self.layout.sessions
        found = await self._sessions(connection, self._is(session_id), *_alive(sessions, utc_now()))
        return found[0] if found else None

    async def of_user(
        self,
        connection: AsyncConnection,
        user_id: str,
        limit: int,
        *,
        before: SessionData | None = None,
        status: SessionStatus | None = None,
        agent_name: str | None = None,
    ) -> list[SessionData]:
        """A user's sessions, those created last first."""
        sessions = self.layout.sessions
        created_at, id = sessions["created_at"], sessions["id"]
        conditions = [sessions["user_id"] == user_id, *_alive(sessions, utc_now())]
        if status is not None:
            conditions.append(sessions["status"] == status)
        if agent_name is not None:
            conditions.append(sessions["agent_name"] == agent_name)
        if before is not None:
            moment = sessions.encode("created_at", before.created_at)
            conditions.append(or_(created_at < moment, and_(created_at == moment, id < before.id)))
        return await self._sessions(connection, *conditions, order=(created_at.desc(), id.desc()), limit=limit)

    async def create(self, connection: AsyncConnection, session: SessionData, again: bool) -> None:
        """Insert a session. If its id was there when that was tried, it may be past its time."""
        if not again or not await self._begin_anew(connection, session):
            stored = await self._version(connection, session.id) if again else None
            if stored is not None:
                raise SessionConflictError(session.id, 0, stored)
            await self._insert(connection, session)

    async def save(
        self, connection: AsyncConnection, session: SessionData, new: Sequence[MessageData], again: bool
    ) -> SessionData:
        """Store a session after a turn, and its messages: the version is compared by the change itself."""
        sessions = self.layout.sessions
        turn: dict[str, Any] = {
            name: getattr(session, name)
            for name in ("current_route", "current_state", "collected_data", "updated_at", "version")
        }
        values = self._values({**turn, "collected_data": dict(session.collected_data)}, new)
        for name in ("user_id", "agent_name"):
            values[sessions[name].key] = func.coalesce(sessions[name], sessions.encode(name, getattr(session, name)))
        if not await self._change(connection, session.id, values, sessions["version"] == session.version - 1):
            stored = await self.get(connection, session.id)
            first = after_turn(stored, session, new)  # refuses all but the first turn
            if stored is not None or not await self._begin_anew(connection, first):
                await self._insert(connection, first)
        await self._append(connection, session.id, new, again)
        return await self._changed(connection, session.id)

    async def update_status(
        self,
        connection: AsyncConnection,
        session_id: str,
        status: SessionStatus,
        at: datetime,
        completed_at: datetime | None,
    ) -> SessionData | None:
        values = self._values({"status": status, "updated_at": at, "completed_at": completed_at}, ())
        found = await self._change(connection, session_id, values)
        return await self._changed(connection, session_id) if found else None

    async def delete(self, connection: AsyncConnection, session_id: str) -> bool:
        sessions, messages = self.layout.sessions, self.layout.messages
        # Whoever is adding messages is waited for, so that none are left behind.
        lock = update(sessions.table).where(self._is(session_id)).values({sessions["version"]: sessions["version"]})
        await connection.execute(lock)
        await connection.execute(delete(messages.table).where(messages["session_id"] == session_id))
        alive = _alive(sessions, utc_now())
        was_there = await _count(connection, delete(sessions.table).where(self._is(session_id), *alive))
        if not was_there:
            await connection.execute(delete(sessions.table).where(self._is(session_id)))
        return bool(was_there)

    async def add(
        self, connection: AsyncConnection, new: Sequence[MessageData], at: datetime, again: bool
    ) -> list[MessageData]:
        session_id = new[0].session_id
        if not await self._change(connection, session_id, self._values({"updated_at": at}, new)):
            raise NotFoundError("session", session_id)
        return await self._append(connection, session_id, new, again)

    async def of_session(
        self, connection: AsyncConnection, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        messages = self.layout.messages
        position = messages["position"]
        conditions = [messages["session_id"] == session_id, *_alive(messages, utc_now())]
        if before is not None:
            conditions.append(position < before)
        if after is not None:
            conditions.append(position > after)
        order = position.desc() if after is None else position.asc()
        query = select(*messages.all_columns()).where(*conditions).order_by(order).limit(limit)
        found = [_message_of(messages.record(row)) for row in await connection.execute(query)]
        return found[::-1] if after is None else found

    async def expired(self, connection: AsyncConnection, shelf: Shelf) -> list[str]:
        """Ids of some rows that are past their time and may be deleted."""
        conditions = self._is_over(shelf)
        if not conditions:
            return []
        rows = await connection.execute(select(shelf["id"]).where(*conditions).limit(BATCH))
        return list(rows.scalars())

    async def purge(self, connection: AsyncConnection, shelf: Shelf, ids: Sequence[str]) -> int:
        """Delete those of the rows that are still past their time."""
        return await _count(connection, delete(shelf.table).where(shelf["id"].in_(ids), *self._is_over(shelf)))

    def _is_over(self, shelf: Shelf) -> list[ColumnElement[bool]]:
        if EXPIRES not in shelf.columns:
            return []
        conditions: list[ColumnElement[bool]] = [shelf[EXPIRES] <= shelf.encode(EXPIRES, utc_now())]
        if shelf is self.layout.sessions and self.layout.linked:
            messages = self.layout.messages
            conditions.append(~select(messages["id"]).where(messages["session_id"] == shelf["id"]).exists())
        return conditions

    def _is(self, session_id: str) -> ColumnElement[bool]:
        return self.layout.sessions["id"] == session_id

    async def _sessions(
        self,
        connection: AsyncConnection,
        *conditions: ColumnElement[bool],
        order: Sequence[ColumnElement[Any]] = (),
        limit: int = 1,
    ) -> list[SessionData]:
        sessions = self.layout.sessions
        query = select(*sessions.all_columns()).where(*conditions).order_by(*order).limit(limit)
        return [_session_of(sessions.record(row)) for row in await connection.execute(query)]

    async def _changed(self, connection: AsyncConnection, session_id: str) -> SessionData:
        """The session that this transaction has changed, even if its time ends meanwhile."""
        return (await self._sessions(connection, self._is(session_id)))[0]

    async def _version(self, connection: AsyncConnection, session_id: str) -> int | None:
        found = await self.get(connection, session_id)
        return None if found is None else found.version

    def _values(self, record: dict[str, Any], new: Sequence[MessageData]) -> dict[str, Any]:
        """What a change sets: the record, the messages that are counted, and when it is past its time."""
        sessions = self.layout.sessions
        if new:
            record = {**record, "last_message_at": new[-1].created_at}
        values = sessions.row({**record, EXPIRES: _until(self.session_ttl)})
        if new:
            values[sessions["message_count"].key] = func.coalesce(sessions["message_count"], 0) + len(new)
        return values

    async def _change(
        self, connection: AsyncConnection, session_id: str, values: dict[str, Any], *conditions: ColumnElement[bool]
    ) -> bool:
        sessions = self.layout.sessions
        alive = _alive(sessions, utc_now())
        change = update(sessions.table).where(self._is(session_id), *conditions, *alive).values(values)
        return await _count(connection, change) > 0

    async def _insert(self, connection: AsyncConnection, session: SessionData) -> None:
        row = self.layout.sessions.row({**session_record(session), EXPIRES: _until(self.session_ttl)})
        await connection.execute(insert(self.layout.sessions.table).values(row))

    async def _begin_anew(self, connection: AsyncConnection, session: SessionData) -> bool:
        """Put a session in the place of one that is past its time."""
        sessions = self.layout.sessions
        if EXPIRES not in sessions.columns:
            return False
        over = sessions[EXPIRES] <= sessions.encode(EXPIRES, utc_now())
        row = sessions.row({**session_record(session), EXPIRES: _until(self.session_ttl)})
        change = update(sessions.table).where(self._is(session.id), over).values(row)
        return await _count(connection, change) > 0

    async def _append(
        self, connection: AsyncConnection, session_id: str, new: Sequence[MessageData], again: bool
    ) -> list[MessageData]:
        """Insert messages behind those of the session, whose row is locked by now."""
        if not new:
            return []
        messages, sessions = self.layout.messages, self.layout.sessions
        if again:
            await self._make_room(connection, [each.id for each in new])
        last = select(func.max(messages["position"])).where(messages["session_id"] == session_id).scalar_subquery()
        counts = await connection.execute(select(last, sessions["message_count"]).where(self._is(session_id)))
        highest, count = counts.one()
        # Those that were counted may be past their time and deleted: their positions are not given again.
        begin = max(int(highest or 0), int(count or 0) - len(new)) + 1
        placed = [replace(copy.deepcopy(each), position=n) for n, each in enumerate(new, start=begin)]
        until = _until(self.message_ttl)
        rows = [messages.row({**message_record(each), EXPIRES: until}) for each in placed]
        await connection.execute(insert(messages.table), rows)
        return placed

    async def _make_room(self, connection: AsyncConnection, ids: Sequence[str]) -> None:
        """Refuse ids of messages that are there, and delete those past their time."""
        messages = self.layout.messages
        for start in range(0, len(ids), BATCH):
            some = messages["id"].in_(ids[start : start + BATCH])
            if over := self._is_over(messages):
                await connection.execute(delete(messages.table).where(some, *over))
            taken = await connection.scalar(select(messages["id"]).where(some).limit(1))
            if taken is not None:
                raise InvalidArgumentError(f"There is a message {taken!r} already: nothing was stored.")


def bound(operation: Callable[..., Awaitable[T]], *values: Any, **named: Any) -> Callable[..., Awaitable[T]]:
    """An operation that does the same when it is done again, as a transaction calls it."""

    async def work(connection: AsyncConnection, again: bool) -> T:
        return await operation(connection, *values, **named)

    return work


def _alive(shelf: Shelf, now: datetime) -> list[ColumnElement[bool]]:
    condition = shelf.alive(now)
    return [] if condition is None else [condition]


def _until(ttl: float | None) -> datetime | None:
    return None if ttl is None else utc_now() + timedelta(seconds=ttl)


async def _count(connection: AsyncConnection, change: Executable) -> int:
    return int((await connection.execute(change)).rowcount)


def _session_of(record: dict[str, Any]) -> SessionData:
    record["collected_data"] = record["collected_data"] or {}
    return SessionData(**record)


def _message_of(record: dict[str, Any]) -> MessageData:
    record["tool_calls"] = tuple(record["tool_calls"] or ())
    return MessageData(**record)
