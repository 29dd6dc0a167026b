"""`PostgresStore`: everything in a PostgreSQL database, for any number of processes."""

from __future__ import annotations

from urllib.parse import urlsplit

from recollect.errors import MissingExtraError
from recollect.stores.store import SqlStore

try:
    from recollect.stores.postgres.engine import PostgresEngine, PostgresOptions
except ModuleNotFoundError as error:
    raise MissingExtraError("asyncpg", "postgres", "The PostgreSQL store") from error


class PostgresStore(SqlStore):
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
        url = _without_password(dsn)
        options = PostgresOptions(dsn, url, schema, pool_size, statement_cache_size=statement_cache_size)
        super().__init__(url, PostgresEngine(options), sequenced=True)


def _without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
