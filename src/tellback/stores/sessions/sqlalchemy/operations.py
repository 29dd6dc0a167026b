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
from tellback.stores.sessions.records import EXPIRES_AT, message_to_record, session_to_record
from tellback.stores.sessions.saving import merge_turn
from tellback.stores.sessions.sqlalchemy.tables import MappedTable, TableLayout
from tellback.types.sessions import MessageData, SessionData, SessionStatus
from tellback.types.times import utc_now

T = TypeVar("T")
BATCH_SIZE = 500


@dataclass(frozen=True, slots=True)
class TableOperations:
    """The operations on a layout, for rows that live so long."""

    layout: TableLayout
    session_ttl: float | None
    message_ttl: float | None

    async def get(self, connection: AsyncConnection, session_id: str) -> SessionData | None:
        sessions = self.layout.sessions
        found = await self._select_sessions(
            connection, self._has_id(session_id), *_live_conditions(sessions, utc_now())
        )
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
        conditions = [sessions["user_id"] == user_id, *_live_conditions(sessions, utc_now())]
        if status is not None:
            conditions.append(sessions["status"] == status)
        if agent_name is not None:
            conditions.append(sessions["agent_name"] == agent_name)
        if before is not None:
            created_before = sessions.encode("created_at", before.created_at)
            conditions.append(or_(created_at < created_before, and_(created_at == created_before, id < before.id)))
        return await self._select_sessions(connection, *conditions, order=(created_at.desc(), id.desc()), limit=limit)

    async def create(self, connection: AsyncConnection, session: SessionData, is_repeat: bool) -> None:
        """Insert a session. If its id was there when that was tried, it may be past its time."""
        if not is_repeat or not await self._replace_expired(connection, session):
            stored = await self._read_version(connection, session.id) if is_repeat else None
            if stored is not None:
                raise SessionConflictError(session.id, 0, stored)
            await self._insert(connection, session)

    async def save(
        self, connection: AsyncConnection, session: SessionData, messages: Sequence[MessageData], is_repeat: bool
    ) -> SessionData:
        """Store a session after a turn, and its messages: the version is compared by the change itself."""
        sessions = self.layout.sessions
        turn: dict[str, Any] = {
            name: getattr(session, name)
            for name in ("current_route", "current_state", "collected_data", "updated_at", "version")
        }
        values = self._change_values({**turn, "collected_data": dict(session.collected_data)}, messages)
        for name in ("user_id", "agent_name"):
            values[sessions[name].key] = func.coalesce(sessions[name], sessions.encode(name, getattr(session, name)))
        if not await self._update(connection, session.id, values, sessions["version"] == session.version - 1):
            stored = await self.get(connection, session.id)
            first = merge_turn(stored, session, messages)  # refuses all but the first turn
            if stored is not None or not await self._replace_expired(connection, first):
                await self._insert(connection, first)
        await self._append_messages(connection, session.id, messages, is_repeat)
        return await self._read_changed(connection, session.id)

    async def update_status(
        self,
        connection: AsyncConnection,
        session_id: str,
        status: SessionStatus,
        at: datetime,
        completed_at: datetime | None,
    ) -> SessionData | None:
        values = self._change_values({"status": status, "updated_at": at, "completed_at": completed_at}, ())
        found = await self._update(connection, session_id, values)
        return await self._read_changed(connection, session_id) if found else None

    async def delete(self, connection: AsyncConnection, session_id: str) -> bool:
        sessions, messages = self.layout.sessions, self.layout.messages
        # Whoever is adding messages is waited for, so that none are left behind.
        lock = update(sessions.table).where(self._has_id(session_id)).values({sessions["version"]: sessions["version"]})
        await connection.execute(lock)
        await connection.execute(delete(messages.table).where(messages["session_id"] == session_id))
        alive = _live_conditions(sessions, utc_now())
        was_there = await _execute_count(connection, delete(sessions.table).where(self._has_id(session_id), *alive))
        if not was_there:
            await connection.execute(delete(sessions.table).where(self._has_id(session_id)))
        return bool(was_there)

    async def add(
        self, connection: AsyncConnection, messages: Sequence[MessageData], at: datetime, is_repeat: bool
    ) -> list[MessageData]:
        session_id = messages[0].session_id
        if not await self._update(connection, session_id, self._change_values({"updated_at": at}, messages)):
            raise NotFoundError("session", session_id)
        return await self._append_messages(connection, session_id, messages, is_repeat)

    async def of_session(
        self, connection: AsyncConnection, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        messages = self.layout.messages
        position = messages["position"]
        conditions = [messages["session_id"] == session_id, *_live_conditions(messages, utc_now())]
        if before is not None:
            conditions.append(position < before)
        if after is not None:
            conditions.append(position > after)
        order = position.desc() if after is None else position.asc()
        query = select(*messages.selected_columns()).where(*conditions).order_by(order).limit(limit)
        found = [_message_from_record(messages.to_record(row)) for row in await connection.execute(query)]
        return found[::-1] if after is None else found

    async def find_expired(self, connection: AsyncConnection, table: MappedTable) -> list[str]:
        """Ids of some rows that are past their time and may be deleted."""
        conditions = self._expired_conditions(table)
        if not conditions:
            return []
        rows = await connection.execute(select(table["id"]).where(*conditions).limit(BATCH_SIZE))
        return list(rows.scalars())

    async def delete_expired(self, connection: AsyncConnection, table: MappedTable, ids: Sequence[str]) -> int:
        """Delete those of the rows that are still past their time."""
        return await _execute_count(
            connection, delete(table.table).where(table["id"].in_(ids), *self._expired_conditions(table))
        )

    def _expired_conditions(self, table: MappedTable) -> list[ColumnElement[bool]]:
        if EXPIRES_AT not in table.columns:
            return []
        conditions: list[ColumnElement[bool]] = [table[EXPIRES_AT] <= table.encode(EXPIRES_AT, utc_now())]
        if table is self.layout.sessions and self.layout.has_foreign_key:
            messages = self.layout.messages
            conditions.append(~select(messages["id"]).where(messages["session_id"] == table["id"]).exists())
        return conditions

    def _has_id(self, session_id: str) -> ColumnElement[bool]:
        return self.layout.sessions["id"] == session_id

    async def _select_sessions(
        self,
        connection: AsyncConnection,
        *conditions: ColumnElement[bool],
        order: Sequence[ColumnElement[Any]] = (),
        limit: int = 1,
    ) -> list[SessionData]:
        sessions = self.layout.sessions
        query = select(*sessions.selected_columns()).where(*conditions).order_by(*order).limit(limit)
        return [_session_from_record(sessions.to_record(row)) for row in await connection.execute(query)]

    async def _read_changed(self, connection: AsyncConnection, session_id: str) -> SessionData:
        """The session that this transaction has changed, even if its time ends meanwhile."""
        return (await self._select_sessions(connection, self._has_id(session_id)))[0]

    async def _read_version(self, connection: AsyncConnection, session_id: str) -> int | None:
        found = await self.get(connection, session_id)
        return None if found is None else found.version

    def _change_values(self, record: dict[str, Any], messages: Sequence[MessageData]) -> dict[str, Any]:
        """What a change sets: the record, the messages that are counted, and when it is past its time."""
        sessions = self.layout.sessions
        if messages:
            record = {**record, "last_message_at": messages[-1].created_at}
        values = sessions.to_row({**record, EXPIRES_AT: _expires_at(self.session_ttl)})
        if messages:
            values[sessions["message_count"].key] = func.coalesce(sessions["message_count"], 0) + len(messages)
        return values

    async def _update(
        self, connection: AsyncConnection, session_id: str, values: dict[str, Any], *conditions: ColumnElement[bool]
    ) -> bool:
        sessions = self.layout.sessions
        alive = _live_conditions(sessions, utc_now())
        change = update(sessions.table).where(self._has_id(session_id), *conditions, *alive).values(values)
        return await _execute_count(connection, change) > 0

    async def _insert(self, connection: AsyncConnection, session: SessionData) -> None:
        row = self.layout.sessions.to_row({**session_to_record(session), EXPIRES_AT: _expires_at(self.session_ttl)})
        await connection.execute(insert(self.layout.sessions.table).values(row))

    async def _replace_expired(self, connection: AsyncConnection, session: SessionData) -> bool:
        """Put a session in the place of one that is past its time."""
        sessions = self.layout.sessions
        if EXPIRES_AT not in sessions.columns:
            return False
        is_expired = sessions[EXPIRES_AT] <= sessions.encode(EXPIRES_AT, utc_now())
        row = sessions.to_row({**session_to_record(session), EXPIRES_AT: _expires_at(self.session_ttl)})
        change = update(sessions.table).where(self._has_id(session.id), is_expired).values(row)
        return await _execute_count(connection, change) > 0

    async def _append_messages(
        self, connection: AsyncConnection, session_id: str, new: Sequence[MessageData], is_repeat: bool
    ) -> list[MessageData]:
        """Insert messages behind those of the session, whose row is locked by now."""
        if not new:
            return []
        messages, sessions = self.layout.messages, self.layout.sessions
        if is_repeat:
            await self._check_message_ids(connection, [each.id for each in new])
        last = select(func.max(messages["position"])).where(messages["session_id"] == session_id).scalar_subquery()
        counts = await connection.execute(select(last, sessions["message_count"]).where(self._has_id(session_id)))
        highest, count = counts.one()
        # Those that were counted may be past their time and deleted: their positions are not given again.
        begin = max(int(highest or 0), int(count or 0) - len(new)) + 1
        positioned = [replace(copy.deepcopy(each), position=n) for n, each in enumerate(new, start=begin)]
        expires_at = _expires_at(self.message_ttl)
        rows = [messages.to_row({**message_to_record(each), EXPIRES_AT: expires_at}) for each in positioned]
        await connection.execute(insert(messages.table), rows)
        return positioned

    async def _check_message_ids(self, connection: AsyncConnection, ids: Sequence[str]) -> None:
        """Refuse ids of messages that are there, and delete those past their time."""
        messages = self.layout.messages
        for start in range(0, len(ids), BATCH_SIZE):
            in_batch = messages["id"].in_(ids[start : start + BATCH_SIZE])
            if expired := self._expired_conditions(messages):
                await connection.execute(delete(messages.table).where(in_batch, *expired))
            taken = await connection.scalar(select(messages["id"]).where(in_batch).limit(1))
            if taken is not None:
                raise InvalidArgumentError(f"There is a message {taken!r} already: nothing was stored.")


def bind_operation(operation: Callable[..., Awaitable[T]], *values: Any, **options: Any) -> Callable[..., Awaitable[T]]:
    """An operation that does the same when it is done again, as a transaction calls it."""

    async def work(connection: AsyncConnection, is_repeat: bool) -> T:
        return await operation(connection, *values, **options)

    return work


def _live_conditions(table: MappedTable, now: datetime) -> list[ColumnElement[bool]]:
    condition = table.is_live(now)
    return [] if condition is None else [condition]


def _expires_at(ttl: float | None) -> datetime | None:
    return None if ttl is None else utc_now() + timedelta(seconds=ttl)


async def _execute_count(connection: AsyncConnection, change: Executable) -> int:
    return int((await connection.execute(change)).rowcount)


def _session_from_record(record: dict[str, Any]) -> SessionData:
    record["collected_data"] = record["collected_data"] or {}
    return SessionData(**record)


def _message_from_record(record: dict[str, Any]) -> MessageData:
    record["tool_calls"] = tuple(record["tool_calls"] or ())
    return MessageData(**record)
