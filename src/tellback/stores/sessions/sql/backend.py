"""Sessions in tables of their own, on any database that has a runner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from tellback.errors import StoreClosedError
from tellback.stores.sessions import checks
from tellback.stores.sessions.sql.columns import TableSpecs
from tellback.stores.sessions.sql.dialect import SqlRunner
from tellback.stores.sessions.sql.migrating import migrate
from tellback.stores.sessions.sql.operations import SqlOperations
from tellback.stores.sessions.sql.statements import build_statements
from tellback.stores.sessions.sql.values import MAX_POSITION, optional_time_value, time_value
from tellback.types.sessions import MessageData, SessionData, SessionStatus

PURGE_BATCH = 1_000


class TableBackend:
    """A `PersistenceAdapter` on two tables that it makes, or that it finds and completes."""

    def __init__(
        self,
        runner: SqlRunner,
        tables: TableSpecs,
        session_ttl: timedelta | float | None,
        message_ttl: timedelta | float | None,
    ) -> None:
        self.runner = runner
        self._tables = tables
        self._session_ttl = checks.to_ttl_seconds("session_ttl", session_ttl)
        self._message_ttl = checks.to_ttl_seconds("message_ttl", message_ttl)
        self._operations: SqlOperations | None = None
        self._lifecycle_lock = asyncio.Lock()
        self.session_repository = _TableSessions(self)
        self.message_repository = _TableMessages(self)

    @property
    def operations(self) -> SqlOperations:
        """What it can do, once it is initialized."""
        if self._operations is None:
            raise StoreClosedError(
                f"The session adapter of {self.runner.place} is not open: call `await adapter.initialize()` first."
            )
        return self._operations

    async def initialize(self) -> None:
        async with self._lifecycle_lock:
            await self.runner.open()
            try:
                types = await self.runner.migrate(lambda: migrate(self._tables, self.runner.dialect, self.runner.place))
            except BaseException:
                if self._operations is None:
                    await self.runner.close()
                raise
            statements = build_statements(self._tables, self.runner.dialect, types)
            self._operations = SqlOperations(statements, self.runner.dialect, self._session_ttl, self._message_ttl)

    async def disconnect(self) -> None:
        async with self._lifecycle_lock:
            self._operations = None
            await self.runner.close()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        checks.validate_session(session)
        validated = checks.validate_messages(messages, session.id)
        operations = self.operations
        return await self.runner.write(operations.save(session, validated))

    async def purge_expired(self) -> int:
        operations = self.operations
        statements = operations.statements
        total = 0
        for statement in (statements.delete_expired_messages, statements.delete_expired_sessions):
            count = PURGE_BATCH
            while count == PURGE_BATCH:
                count = await self.runner.write(operations.purge(statement, PURGE_BATCH))
                total += count
        return total


class _TableSessions:
    def __init__(self, backend: TableBackend) -> None:
        self._backend = backend

    async def create(self, session: SessionData) -> SessionData:
        checks.validate_session(session)
        operations = self._backend.operations
        return await self._backend.runner.write(operations.create(session))

    async def get(self, session_id: str) -> SessionData | None:
        id = checks.validate_id("session_id", session_id)
        return await self._first(self._backend.operations.statements.select_session, id=id)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        checks.validate_id("user_id", user_id)
        statements = self._backend.operations.statements
        if checks.validate_optional_id("agent_name", agent_name) is None:
            return await self._first(statements.select_active, user_id=user_id, limit=1)
        return await self._first(statements.select_active_of_agent, user_id=user_id, agent_name=agent_name, limit=1)

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        values: dict[str, object] = {
            "user_id": checks.validate_id("user_id", user_id),
            "limit": checks.validate_limit(limit),
        }
        operations = self._backend.operations
        statement = operations.statements.list_sessions
        if before is not None:
            statement = operations.statements.list_sessions_before
            values["id"] = checks.validate_session(before).id
            values["created_at"] = time_value("created_at", before.created_at, operations.dialect)
        return await self._backend.runner.read(operations.sessions(statement, values))

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        checks.validate_status(status)
        id = checks.validate_id("session_id", session_id)
        operations = self._backend.operations
        values = {
            "id": id,
            "status": status,
            "updated_at": time_value("at", at, operations.dialect),
            "completed_at": optional_time_value("completed_at", completed_at, operations.dialect),
        }
        return await self._backend.runner.write(operations.set_status(values))

    async def delete(self, session_id: str) -> bool:
        id = checks.validate_id("session_id", session_id)
        return await self._backend.runner.write(self._backend.operations.delete(id))

    async def _first(self, statement: str, **values: object) -> SessionData | None:
        operation = self._backend.operations.sessions(statement, values)
        found = await self._backend.runner.read(operation)
        return found[0] if found else None


class _TableMessages:
    def __init__(self, backend: TableBackend) -> None:
        self._backend = backend

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        validated = checks.validate_messages(messages)
        operations = self._backend.operations
        added_at = time_value("at", at, operations.dialect)
        if not validated:
            return []
        return await self._backend.runner.write(operations.add(validated, added_at))

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        id, max_count = checks.validate_id("session_id", session_id), checks.validate_limit(limit)
        before_position, after_position = (
            checks.validate_position("before", before),
            checks.validate_position("after", after),
        )
        operations = self._backend.operations
        statement = (
            operations.statements.list_latest_messages
            if after_position is None
            else operations.statements.list_earliest_messages
        )
        values = {
            "session_id": id,
            "limit": max_count,
            "before": MAX_POSITION if before_position is None else before_position,
            "after": -1 if after_position is None else after_position,
        }
        found = await self._backend.runner.read(operations.messages(statement, values))
        return found if after_position is not None else found[::-1]
