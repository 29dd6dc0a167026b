"""`SqlStore`: every port on one engine."""

from __future__ import annotations

from tellback.stores.engine import SqlEngine
from tellback.stores.events import SqlEventLog
from tellback.stores.operations.access import SqlApiKeys, SqlIdempotencyStore, SqlRateWindows
from tellback.stores.operations.agent_sessions import SqlAgentSessions
from tellback.stores.operations.conversations import SqlConversationLog
from tellback.stores.operations.dispatch import SqlBindings
from tellback.stores.operations.jobs import SqlJobLog
from tellback.stores.operations.memory import SqlMemoryStore
from tellback.stores.operations.user_data import SqlUserData


class SqlStore:
    """`Store` on an engine."""

    def __init__(self, url: str, engine: SqlEngine, *, positions_after_commit: bool) -> None:
        self._engine = engine
        self.url = url
        self.conversations = SqlConversationLog(engine)
        self.sessions = SqlAgentSessions(engine)
        self.memories = SqlMemoryStore(engine)
        self.events = SqlEventLog(engine, positions_after_commit=positions_after_commit)
        self.bindings = SqlBindings(engine, self.events)
        self.jobs = SqlJobLog(engine, self.events)
        self.user_data = SqlUserData(engine, self.events)
        self.api_keys = SqlApiKeys(engine)
        self.rate_windows = SqlRateWindows(engine)
        self.idempotency = SqlIdempotencyStore(engine)

    @property
    def instance_id(self) -> str:
        """The name of this opening."""
        return self._engine.instance_id

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def is_instance_alive(self, instance_id: str) -> bool | None:
        return await self._engine.is_instance_alive(instance_id)
