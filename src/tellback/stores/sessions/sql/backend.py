"""Sessions in tables of their own, on any database that has a runner."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from tellback.errors import StoreClosedError
from tellback.stores.sessions import checks
from tellback.stores.sessions.sql.columns import Tables
from tellback.stores.sessions.sql.dialect import Runner
from tellback.stores.sessions.sql.migrating import migrate
from tellback.stores.sessions.sql.operations import Operations
from tellback.stores.sessions.sql.statements import statements_of
from tellback.stores.sessions.sql.values import MOST, moment_value, required_moment
from tellback.types.sessions import MessageData, SessionData, SessionStatus

PURGE_BATCH = 1_000


class OwnTables:
    """A `PersistenceAdapter` on two tables that it makes, or that it finds and completes."""

    def __init__(
        self,
        runner: Runner,
        tables: Tables,
        session_ttl: timedelta | float | None,
        message_ttl: timedelta | float | None,
    ) -> None:
        self.runner = runner
        self._tables = tables
        self._session_ttl = checks.ttl("session_ttl", session_ttl)
        self._message_ttl = checks.ttl("message_ttl", message_ttl)
        self._operations: Operations | None = None
        self._changing = asyncio.Lock()
        self.session_repository = _Sessions(self)
        self.message_repository = _Messages(self)

    @property
    def operations(self) -> Operations:
        """What it can do, once it is initialized."""
        if self._operations is None:
            raise StoreClosedError(
                f"The session adapter of {self.runner.place} is not open: call `await adapter.initialize()` first."
            )
        return self._operations

    async def initialize(self) -> None:
        async with self._changing:
            await self.runner.open()
            try:
                types = await self.runner.migrate(lambda: migrate(self._tables, self.runner.dialect, self.runner.place))
            except BaseException:
                if self._operations is None:
                    await self.runner.close()
                raise
            statements = statements_of(self._tables, self.runner.dialect, types)
            self._operations = Operations(statements, self.runner.dialect, self._session_ttl, self._message_ttl)

    async def disconnect(self) -> None:
        async with self._changing:
            self._operations = None
            await self.runner.close()

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        checks.session(session)
        new = checks.messages(messages, session.id)
        operations = self.operations
        return await self.runner.write(operations.save(session, new))

    async def purge_expired(self) -> int:
        operations = self.operations
        statements = operations.statements
        total = 0
        for statement in (statements.purge_messages, statements.purge_sessions):
            count = PURGE_BATCH
            while count == PURGE_BATCH:
                count = await self.runner.write(operations.purge(statement, PURGE_BATCH))
                total += count
        return total


class _Sessions:
    def __init__(self, backend: OwnTables) -> None:
        self._backend = backend

    async def create(self, session: SessionData) -> SessionData:
        checks.session(session)
        operations = self._backend.operations
        return await self._backend.runner.write(operations.create(session))

    async def get(self, session_id: str) -> SessionData | None:
        id = checks.id_of("session_id", session_id)
        return await self._first(self._backend.operations.statements.get, id=id)

    async def find_active(self, user_id: str, agent_name: str | None = None) -> SessionData | None:
        checks.id_of("user_id", user_id)
        statements = self._backend.operations.statements
        if checks.optional_id("agent_name", agent_name) is None:
            return await self._first(statements.active, user_id=user_id, limit=1)
        return await self._first(statements.active_of_agent, user_id=user_id, agent_name=agent_name, limit=1)

    async def of_user(
        self, user_id: str, *, limit: int | None = None, before: SessionData | None = None
    ) -> list[SessionData]:
        values: dict[str, object] = {"user_id": checks.id_of("user_id", user_id), "limit": checks.limit_of(limit)}
        operations = self._backend.operations
        statement = operations.statements.of_user
        if before is not None:
            statement = operations.statements.of_user_before
            values["id"] = checks.session(before).id
            values["created_at"] = required_moment("created_at", before.created_at, operations.dialect)
        return await self._backend.runner.read(operations.sessions(statement, values))

    async def update_status(
        self, session_id: str, status: SessionStatus, *, at: datetime, completed_at: datetime | None
    ) -> SessionData | None:
        checks.status(status)
        id = checks.id_of("session_id", session_id)
        operations = self._backend.operations
        values = {
            "id": id,
            "status": status,
            "updated_at": required_moment("at", at, operations.dialect),
            "completed_at": moment_value("completed_at", completed_at, operations.dialect),
        }
        return await self._backend.runner.write(operations.set_status(values))

    async def delete(self, session_id: str) -> bool:
        id = checks.id_of("session_id", session_id)
        return await self._backend.runner.write(self._backend.operations.delete(id))

    async def _first(self, statement: str, **values: object) -> SessionData | None:
        make = self._backend.operations.sessions(statement, values)
        found = await self._backend.runner.read(make)
        return found[0] if found else None


class _Messages:
    def __init__(self, backend: OwnTables) -> None:
        self._backend = backend

    async def add(self, messages: Sequence[MessageData], *, at: datetime) -> list[MessageData]:
        found = checks.messages(messages)
        operations = self._backend.operations
        moment = required_moment("at", at, operations.dialect)
        if not found:
            return []
        return await self._backend.runner.write(operations.add(found, moment))

    async def of_session(
        self, session_id: str, *, limit: int | None = None, before: int | None = None, after: int | None = None
    ) -> list[MessageData]:
        id, most = checks.id_of("session_id", session_id), checks.limit_of(limit)
        until, since = checks.position_of("before", before), checks.position_of("after", after)
        operations = self._backend.operations
        statement = operations.statements.latest if since is None else operations.statements.earliest
        values = {
            "session_id": id,
            "limit": most,
            "before": MOST if until is None else until,
            "after": -1 if since is None else since,
        }
        found = await self._backend.runner.read(operations.messages(statement, values))
        return found if since is not None else found[::-1]
