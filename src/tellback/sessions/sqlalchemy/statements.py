"""The statements of `sql.tables` as SQLAlchemy expressions, which SQLAlchemy compiles for each database.

Every change begins with a write, which locks the session's row (in SQLite the file) before anything is read. Not every
database has RETURNING or ON CONFLICT: rows are read after they were changed. If a row already exists, an
`IntegrityError` is raised, and the whole transaction is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.base import Executable

from tellback.errors import InvalidArgumentError
from tellback.sessions.records import EXPIRES_AT, MESSAGE_FIELDS, SESSION_FIELDS
from tellback.sessions.sql.tables import TableStatements, Values
from tellback.sessions.sqlalchemy.tables import MappedTable, TableLayout
from tellback.stores.engine import UNBOUNDED, Operation
from tellback.types.conversations import MessageData, SessionData
from tellback.types.ids import utc_now

Rows = Sequence[Any]

BATCH_SIZE = 500
_TURN_FIELDS = ("current_route", "current_state", "collected_data", "updated_at", "version")


class CoreStatements(TableStatements):
    """Converts rows to sessions and messages. Values are records, which `CoreTransaction` encodes for the columns."""

    def __init__(self, layout: TableLayout) -> None:
        self._layout = layout

    def session_from_row(self, row: Any) -> SessionData:
        record = self._layout.sessions.to_record(row)
        return SessionData(**{**record, "collected_data": record["collected_data"] or {}})

    def message_from_row(self, row: Any) -> MessageData:
        record = self._layout.messages.to_record(row)
        return MessageData(**{**record, "tool_calls": tuple(record["tool_calls"] or ())})

    def insert_messages(self, rows: Sequence[Values]) -> Operation[None]:
        yield "insert_messages", {"rows": rows}


class CoreTransaction:
    """Runs statements by name on a connection. A repeated run checks for existing rows."""

    def __init__(self, layout: TableLayout, connection: AsyncConnection, is_repeat: bool) -> None:
        self._layout = layout
        self._sessions, self._messages = layout.sessions, layout.messages
        self._connection = connection
        self._is_repeat = is_repeat

    async def execute(self, name: str, values: Values) -> list[Any]:
        """Run the statement with that name, and return its rows."""
        return list(await getattr(self, name)(values))

    async def insert_session(self, values: Values) -> Rows:
        row = _encode_row(self._sessions, SESSION_FIELDS, values)
        if self._is_repeat:
            if expired := self._expired_conditions(self._sessions, alone=False):
                replaced = sa.update(self._sessions.table).where(self._has_id(values), *expired).values(row)
                if await self._count(replaced):
                    return await self._select_by_id(values)
            if await self.select_version(values):
                return []
        await self._connection.execute(sa.insert(self._sessions.table).values(row))
        return await self._select_by_id(values)

    async def update_turn(self, values: Values) -> Rows:
        sessions = self._sessions
        changes = self._changes(values, *_TURN_FIELDS)
        for name in ("user_id", "agent_name"):
            changes[sessions[name].key] = sa.func.coalesce(sessions[name], sessions.encode(name, values[name]))
        return await self._update(values, changes, sessions["version"] == values["expected"])

    async def update_message_count(self, values: Values) -> Rows:
        rows = await self._update(values, self._changes(values, "updated_at"))
        return [[self._sessions.to_record(row)["message_count"]] for row in rows]

    async def update_status(self, values: Values) -> Rows:
        return await self._update(values, self._changes(values, "status", "updated_at", "completed_at"))

    async def select_version(self, values: Values) -> Rows:
        return await self._fetch(
            sa.select(self._sessions["version"]).where(self._has_id(values), *self._live_conditions(self._sessions))
        )

    async def select_session(self, values: Values) -> Rows:
        return await self._select_by_id(values, *self._live_conditions(self._sessions))

    async def list_sessions(self, values: Values, *conditions: sa.ColumnElement[bool]) -> Rows:
        sessions = self._sessions
        query = sa.select(*sessions.selected_columns()).where(
            sessions["user_id"] == values["user_id"], *self._live_conditions(sessions), *conditions
        )
        newest_first = sessions["created_at"].desc(), sessions["id"].desc()
        return await self._fetch(query.order_by(*newest_first).limit(values["limit"]))

    async def list_sessions_before(self, values: Values) -> Rows:
        created_at, id = self._sessions["created_at"], self._sessions["id"]
        before = self._sessions.encode("created_at", values["created_at"])
        is_before = sa.or_(created_at < before, sa.and_(created_at == before, id < values["id"]))
        return await self.list_sessions(values, is_before)

    async def select_active(self, values: Values, *conditions: sa.ColumnElement[bool]) -> Rows:
        return await self.list_sessions(values, self._sessions["status"] == "active", *conditions)

    async def select_active_of_agent(self, values: Values) -> Rows:
        return await self.select_active(values, self._sessions["agent_name"] == values["agent_name"])

    async def lock_session(self, values: Values) -> Rows:
        """Wait for concurrent writers. Return whether the session has not expired, if it exists."""
        sessions = self._sessions
        lock = sa.update(sessions.table).where(self._has_id(values)).values({sessions["version"]: sessions["version"]})
        await self._connection.execute(lock)
        if await self.select_version(values):
            return [[True]]
        return [[False] for _ in await self._fetch(sa.select(sessions["id"]).where(self._has_id(values)))]

    async def delete_session(self, values: Values) -> Rows:
        await self._connection.execute(sa.delete(self._sessions.table).where(self._has_id(values)))
        return []

    async def delete_messages(self, values: Values, *conditions: sa.ColumnElement[bool]) -> Rows:
        is_of_session = self._messages["session_id"] == values["id"]
        await self._connection.execute(sa.delete(self._messages.table).where(is_of_session, *conditions))
        return []

    async def delete_orphaned_messages(self, values: Values) -> Rows:
        return await self.delete_messages(values, ~sa.select(self._sessions["id"]).where(self._has_id(values)).exists())

    async def select_last_position(self, values: Values) -> Rows:
        messages = self._messages
        return await self._fetch(
            sa.select(sa.func.max(messages["position"])).where(messages["session_id"] == values["id"])
        )

    async def insert_messages(self, values: Values) -> Rows:
        ids = [row["id"] for row in values["rows"]]
        if len(set(ids)) < len(ids):
            raise InvalidArgumentError("Two of the messages have the same id: nothing was stored.")
        if self._is_repeat:
            await self._refuse_stored_messages(ids)
        rows = [_encode_row(self._messages, MESSAGE_FIELDS, row) for row in values["rows"]]
        await self._connection.execute(sa.insert(self._messages.table), rows)
        return []

    async def list_latest_messages(self, values: Values) -> Rows:
        return await self._list_messages(values, self._messages["position"].desc())

    async def list_earliest_messages(self, values: Values) -> Rows:
        return await self._list_messages(values, self._messages["position"].asc())

    async def delete_expired_sessions(self, values: Values) -> Rows:
        return await self._delete_expired(self._sessions, values["limit"])

    async def delete_expired_messages(self, values: Values) -> Rows:
        return await self._delete_expired(self._messages, values["limit"])

    async def _list_messages(self, values: Values, order: sa.ColumnElement[Any]) -> Rows:
        messages = self._messages
        position = messages["position"]
        conditions = [messages["session_id"] == values["session_id"], *self._live_conditions(messages)]
        # A column's type may be too small for the numbers that mean no limit.
        if values["before"] != UNBOUNDED:
            conditions.append(position < values["before"])
        if values["after"] >= 0:
            conditions.append(position > values["after"])
        query = sa.select(*messages.selected_columns()).where(*conditions).order_by(order).limit(values["limit"])
        return await self._fetch(query)

    async def _delete_expired(self, table: MappedTable, limit: int) -> Rows:
        conditions = self._expired_conditions(table)
        if not conditions:
            return []
        ids = [row[0] for row in await self._fetch(sa.select(table["id"]).where(*conditions).limit(limit))]
        if not ids:
            return []
        # The conditions are checked again: rows that were renewed in the meantime are not deleted.
        return range(await self._count(sa.delete(table.table).where(table["id"].in_(ids), *conditions)))

    async def _refuse_stored_messages(self, ids: Sequence[str]) -> None:
        """Reject ids of existing messages, and delete expired ones."""
        messages = self._messages
        for start in range(0, len(ids), BATCH_SIZE):
            in_batch = messages["id"].in_(ids[start : start + BATCH_SIZE])
            if expired := self._expired_conditions(messages):
                await self._connection.execute(sa.delete(messages.table).where(in_batch, *expired))
            taken = await self._connection.scalar(sa.select(messages["id"]).where(in_batch).limit(1))
            if taken is not None:
                raise InvalidArgumentError(f"The message {taken!r} already exists: nothing was stored.")

    def _changes(self, values: Values, *names: str) -> dict[str, Any]:
        """Return the columns that a change sets: some fields, the message count, and the expiry time."""
        sessions, count = self._sessions, values.get("count", 0)
        changes = _encode_row(sessions, (*names, "last_message_at") if count else names, values)
        if count:
            changes[sessions["message_count"].key] = sa.func.coalesce(sessions["message_count"], 0) + count
        return changes

    async def _update(self, values: Values, changes: dict[str, Any], *conditions: sa.ColumnElement[bool]) -> Rows:
        """Change an unexpired session, and return the result even if it expires meanwhile."""
        live = self._live_conditions(self._sessions)
        change = sa.update(self._sessions.table).where(self._has_id(values), *conditions, *live).values(changes)
        return await self._select_by_id(values) if await self._count(change) else []

    async def _select_by_id(self, values: Values, *conditions: sa.ColumnElement[bool]) -> Rows:
        return await self._fetch(
            sa.select(*self._sessions.selected_columns()).where(self._has_id(values), *conditions).limit(1)
        )

    def _has_id(self, values: Values) -> sa.ColumnElement[bool]:
        condition: sa.ColumnElement[bool] = self._sessions["id"] == values["id"]
        return condition

    def _live_conditions(self, table: MappedTable) -> list[sa.ColumnElement[bool]]:
        condition = table.is_live(utc_now())
        return [] if condition is None else [condition]

    def _expired_conditions(self, table: MappedTable, *, alone: bool = True) -> list[sa.ColumnElement[bool]]:
        """Return the conditions for an expired row; empty if rows never expire.

        With `alone`, exclude sessions that cannot be deleted because messages refer to them.
        """
        if EXPIRES_AT not in table.columns:
            return []
        conditions: list[sa.ColumnElement[bool]] = [table[EXPIRES_AT] <= table.encode(EXPIRES_AT, utc_now())]
        if alone and table is self._sessions and self._layout.has_foreign_key:
            messages = self._messages
            conditions.append(~sa.select(messages["id"]).where(messages["session_id"] == table["id"]).exists())
        return conditions

    async def _fetch(self, query: Executable) -> Rows:
        return (await self._connection.execute(query)).all()

    async def _count(self, change: Executable) -> int:
        return int((await self._connection.execute(change)).rowcount)


def _encode_row(table: MappedTable, names: Sequence[str], values: Values) -> dict[str, Any]:
    """Encode fields for their columns, and add the expiry time."""
    ttl = values["ttl"]
    expires_at = None if ttl is None else utc_now() + timedelta(seconds=ttl)
    return table.to_row({**{name: values[name] for name in names}, EXPIRES_AT: expires_at})
