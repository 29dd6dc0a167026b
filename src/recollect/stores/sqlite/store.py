"""`SqliteStore`: everything in one file."""

from __future__ import annotations

from recollect.stores.conversations import SqlConversations
from recollect.stores.events import SqlEvents
from recollect.stores.sqlite.connection import SqliteOptions
from recollect.stores.sqlite.engine import SqliteEngine


class SqliteStore:
    """The store in one SQLite file, or in memory with ":memory:".

    >>> SqliteStore("recollect.db").url
    'sqlite:///recollect.db'
    """

    def __init__(
        self,
        path: str,
        *,
        synchronous: str = "normal",
        busy_timeout: float = 10.0,
        read_only: bool = False,
    ) -> None:
        self._engine = SqliteEngine(SqliteOptions(path, synchronous, busy_timeout, read_only))
        self.url = f"sqlite:///{path}"
        self.owner = self._engine.owner
        self.conversations = SqlConversations(self._engine)
        self.events = SqlEvents(self._engine, sequenced=False)

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def is_alive(self, owner: str) -> bool | None:
        return await self._engine.is_alive(owner)
