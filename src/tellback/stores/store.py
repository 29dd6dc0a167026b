"""A store is an engine with the ports on it."""

from __future__ import annotations

from tellback.stores.agent_sessions import SqlAgentSessions
from tellback.stores.api_keys import SqlApiKeys
from tellback.stores.bindings import SqlBindings
from tellback.stores.conversations import SqlConversations
from tellback.stores.engine import Engine
from tellback.stores.events import SqlEvents
from tellback.stores.jobs import SqlJobs
from tellback.stores.kept_answers import SqlKeptAnswers
from tellback.stores.memories import SqlMemories
from tellback.stores.rate_windows import SqlRateWindows
from tellback.stores.user_data import SqlUserData


class SqlStore:
    """`Store` on an engine."""

    def __init__(self, url: str, engine: Engine, *, sequenced: bool) -> None:
        self._engine = engine
        self.url = url
        self.conversations = SqlConversations(engine)
        self.sessions = SqlAgentSessions(engine)
        self.memories = SqlMemories(engine)
        self.events = SqlEvents(engine, sequenced=sequenced)
        self.bindings = SqlBindings(engine, self.events)
        self.jobs = SqlJobs(engine, self.events)
        self.user_data = SqlUserData(engine, self.events)
        self.api_keys = SqlApiKeys(engine)
        self.rate_windows = SqlRateWindows(engine)
        self.kept_answers = SqlKeptAnswers(engine)

    @property
    def owner(self) -> str:
        """The name of this opening."""
        return self._engine.owner

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def is_alive(self, owner: str) -> bool | None:
        return await self._engine.is_alive(owner)
