"""Sessions in two tables of their own: the operations on them, independent of what runs their statements.

`SqliteAdapter` and `PostgresAdapter` run our own SQL (`statements`). `SqlAlchemyAdapter` runs SQLAlchemy's expressions
(`sqlalchemy.statements`), which work with any database. Both exist because our own SQL needs no package, and SQLAlchemy
needs 15 times the CPU time for a turn on SQLite (4.4 ms instead of 0.3) and 4 times on PostgreSQL (2.5 ms instead of
0.6).

Sessions in the store of a `Tellback` are implemented separately (`stores.operations.conversations`), because their
messages are those of conversations.
"""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol

from tellback.errors import NotFoundError, SessionConflictError, StoreClosedError
from tellback.sessions.records import count_messages, encode_message, encode_valid_session, format_time
from tellback.sessions.storage import Ttl, resolve_ttls
from tellback.stores.engine import UNBOUNDED, Operation, OperationFactory, T
from tellback.types.conversations import MessageData, SessionData, SessionStatus

Values = Mapping[str, Any]

PURGE_BATCH = 500
"""How many rows are deleted at a time."""


class TableStatements(ABC):
    """Converts sessions and messages to the values of named statements, and rows to sessions and messages.

    `times_as_text` is for databases without a time type. `insert_messages` runs inside operations, with as many
    statements as it needs.
    """

    times_as_text = False

    def session_values(self, session: SessionData) -> dict[str, Any]:
        return encode_valid_session(session, times=self.times_as_text)

    def message_values(self, message: MessageData) -> dict[str, Any]:
        return encode_message(message, times=self.times_as_text)

    def time_value(self, time: datetime) -> Any:
        return format_time(time) if self.times_as_text else time

    @abstractmethod
    def session_from_row(self, row: Any) -> SessionData: ...

    @abstractmethod
    def message_from_row(self, row: Any) -> MessageData: ...

    @abstractmethod
    def insert_messages(self, rows: Sequence[Values]) -> Operation[None]: ...


class TableRunner(Protocol):
    """Runs each operation in its own transaction. The scope is always None: only the store's tables have scopes.

    `prepare_tables` creates or migrates the tables after `open`. `place` is the database's name in errors.
    """

    place: str

    async def open(self) -> None: ...

    async def prepare_tables(self) -> TableStatements: ...

    async def close(self) -> None: ...

    async def read(self, scope: None, make: OperationFactory[T], *, brief: bool = False) -> T: ...

    async def write(self, scope: None, make: OperationFactory[T]) -> T: ...


class TableStorage:
    """A `SessionStorage` on two tables."""

    def __init__(self, runner: TableRunner, session_ttl: Ttl, message_ttl: Ttl) -> None:
        self._runner = runner
        self._session_ttl, self._message_ttl = resolve_ttls(session_ttl, message_ttl)
        self._statements: TableStatements | None = None
        self._lifecycle_lock = asyncio.Lock()

    async def initialize(self) -> None:
        async with self._lifecycle_lock:
            try:
                await self._runner.open()
                self._statements = await self._runner.prepare_tables()
            except BaseException:
                if self._statements is None:
                    await self._runner.close()
                raise

    async def disconnect(self) -> None:
        async with self._lifecycle_lock:
            self._statements = None
            await self._runner.close()

    async def create(self, session: SessionData) -> SessionData:
        statements = self._require_open()
        row = await self._runner.write(None, partial(_create, self._session_values(session)))
        return statements.session_from_row(row)

    async def get(self, session_id: str) -> SessionData | None:
        return await self._first("select_session", {"id": session_id}, brief=True)

    async def find_active(self, user_id: str, agent_name: str | None) -> SessionData | None:
        if agent_name is None:
            return await self._first("select_active", {"user_id": user_id, "limit": 1})
        values = {"user_id": user_id, "agent_name": agent_name, "limit": 1}
        return await self._first("select_active_of_agent", values)

    async def list_by_user(self, user_id: str, limit: int, before: SessionData | None) -> list[SessionData]:
        statements = self._require_open()
        name, values = "list_sessions", {"user_id": user_id, "limit": limit}
        if before is not None:
            name = "list_sessions_before"
            values |= {"id": before.id, "created_at": statements.time_value(before.created_at)}
        return [statements.session_from_row(row) for row in await self._fetch(name, values)]

    async def update_status(
        self, session_id: str, status: SessionStatus, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        statements = self._require_open()
        values = {
            "id": session_id,
            "status": status,
            "updated_at": statements.time_value(at),
            "completed_at": None if completed_at is None else statements.time_value(completed_at),
            "ttl": self._session_ttl,
        }
        rows = await self._runner.write(None, partial(_run_statement, "update_status", values))
        return statements.session_from_row(rows[0]) if rows else None

    async def delete(self, session_id: str) -> bool:
        self._require_open()
        return await self._runner.write(None, partial(_delete, {"id": session_id}))

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        statements = self._require_open()
        turn = {**self._session_values(session), **self._counts(messages), "expected": session.version - 1}
        first_turn = self._session_values(count_messages(replace(session, message_count=0), messages))
        rows = self._message_values(messages)
        return await self._runner.write(None, partial(_save, statements, turn, first_turn, rows))

    async def add(self, messages: Sequence[MessageData], at: datetime) -> list[MessageData]:
        statements = self._require_open()
        counts = {
            "id": messages[0].session_id,
            "updated_at": statements.time_value(at),
            "ttl": self._session_ttl,
            **self._counts(messages),
        }
        added, rows = copy.deepcopy(messages), self._message_values(messages)
        position = await self._runner.write(None, partial(_add, statements, counts, rows))
        return [replace(each, position=position + n) for n, each in enumerate(added)]

    async def list_by_session(
        self, session_id: str, limit: int, before: int | None, after: int | None
    ) -> list[MessageData]:
        statements = self._require_open()
        values = {
            "session_id": session_id,
            "limit": limit,
            "before": UNBOUNDED if before is None else before,
            "after": -1 if after is None else after,
        }
        rows = await self._fetch("list_latest_messages" if after is None else "list_earliest_messages", values)
        found = [statements.message_from_row(row) for row in rows]
        return found[::-1] if after is None else found

    async def purge_expired(self) -> int:
        self._require_open()
        total = 0
        for name in ("delete_expired_messages", "delete_expired_sessions"):
            count = PURGE_BATCH
            while count >= PURGE_BATCH:
                count = len(await self._runner.write(None, partial(_run_statement, name, {"limit": PURGE_BATCH})))
                total += count
        return total

    def _require_open(self) -> TableStatements:
        if self._statements is None:
            raise StoreClosedError(
                f"The session adapter of {self._runner.place} is not open: call `await adapter.initialize()` first."
            )
        return self._statements

    async def _fetch(self, name: str, values: Values, *, brief: bool = False) -> list[Any]:
        return await self._runner.read(None, partial(_run_statement, name, values), brief=brief)

    async def _first(self, name: str, values: Values, *, brief: bool = False) -> SessionData | None:
        statements = self._require_open()
        rows = await self._fetch(name, values, brief=brief)
        return statements.session_from_row(rows[0]) if rows else None

    def _session_values(self, session: SessionData) -> dict[str, Any]:
        return {**self._require_open().session_values(session), "ttl": self._session_ttl}

    def _message_values(self, messages: Sequence[MessageData]) -> list[Values]:
        statements = self._require_open()
        return [{**statements.message_values(each), "ttl": self._message_ttl} for each in messages]

    def _counts(self, messages: Sequence[MessageData]) -> dict[str, Any]:
        last = self._require_open().time_value(messages[-1].created_at) if messages else None
        return {"count": len(messages), "last_message_at": last}


def _run_statement(name: str, values: Values) -> Operation[list[Any]]:
    return (yield name, values)


def _create(values: Values) -> Operation[Any]:
    rows = yield "insert_session", values
    if not rows:
        raise SessionConflictError(values["id"], 0, (yield from _read_version(values["id"])))
    return rows[0]


def _save(
    statements: TableStatements, turn: Values, first_turn: Values, messages: Sequence[Values]
) -> Operation[SessionData]:
    """Update the session first: its row stays locked, so concurrent calls cannot use the same positions."""
    id, expected = turn["id"], turn["expected"]
    rows = yield "update_turn", turn
    if not rows and expected == 0:
        rows = yield "insert_session", first_turn
        if not rows:  # another call has just created it
            rows = yield "update_turn", turn
    if not rows:
        raise SessionConflictError(id, expected, (yield from _read_version(id)))
    saved = statements.session_from_row(rows[0])
    yield from _append(statements, id, messages, saved.message_count)
    return saved


def _add(statements: TableStatements, counts: Values, messages: Sequence[Values]) -> Operation[int]:
    """Append messages to a session and count them. Return the first position."""
    rows = yield "update_message_count", counts
    if not rows:
        raise NotFoundError("session", counts["id"])
    return (yield from _append(statements, counts["id"], messages, int(rows[0][0])))


def _append(statements: TableStatements, id: str, messages: Sequence[Values], count: int) -> Operation[int]:
    """Append messages after all counted ones, expired ones included. Return the first position."""
    if not messages:
        return 0
    rows = yield "select_last_position", {"id": id}
    first_position = max(int(rows[0][0] or 0) if rows else 0, count - len(messages)) + 1
    positioned = [{**each, "position": first_position + n} for n, each in enumerate(messages)]
    yield from statements.insert_messages(positioned)
    return first_position


def _delete(values: Values) -> Operation[bool]:
    rows = yield "lock_session", values
    # If the session does not exist, another call may be creating it: the messages of that call must stay.
    yield "delete_messages" if rows else "delete_orphaned_messages", values
    if rows:
        yield "delete_session", values
    return bool(rows and rows[0][0])


def _read_version(id: str) -> Operation[int]:
    rows = yield "select_version", {"id": id}
    return int(rows[0][0] or 0) if rows else 0
