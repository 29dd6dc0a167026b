"""`PostgresStore`: everything in a PostgreSQL database, for any number of processes."""

from __future__ import annotations

from urllib.parse import urlsplit

from recollect.errors import MissingExtraError
from recollect.stores.conversations import SqlConversations
from recollect.stores.events import SqlEvents

try:
    from recollect.stores.postgres.engine import PostgresEngine, PostgresOptions
except ModuleNotFoundError as error:
    raise MissingExtraError("asyncpg", "postgres", "The PostgreSQL store") from error


class PostgresStore:
    """The store in a PostgreSQL database.

    >>> PostgresStore("postgresql://app:secret@db/prod").url
    'postgresql://db/prod'
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "recollect",
        pool_size: int = 10,
        statement_cache_size: int = 100,
    ) -> None:
        self.url = _without_password(dsn)
        self._engine = PostgresEngine(
            PostgresOptions(dsn, self.url, schema, pool_size, statement_cache_size=statement_cache_size)
        )
        self.owner = self._engine.owner
        self.conversations = SqlConversations(self._engine)
        self.events = SqlEvents(self._engine, sequenced=True)

    async def open(self) -> None:
        await self._engine.open()

    async def close(self) -> None:
        await self._engine.close()

    async def is_alive(self, owner: str) -> bool | None:
        return await self._engine.is_alive(owner)


def _without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    port = f":{parts.port}" if parts.port else ""
    return f"postgresql://{host}{port}{parts.path}"
