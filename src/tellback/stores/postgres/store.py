"""`PostgresStore`: everything in a PostgreSQL database, for any number of processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tellback.errors import MissingExtraError
from tellback.stores.store import SqlStore

try:
    from tellback.stores.postgres.engine import PostgresEngine, PostgresOptions
    from tellback.stores.postgres.schema import APP_ROLE
except ModuleNotFoundError as error:
    raise MissingExtraError("asyncpg", "postgres", "The PostgreSQL store") from error


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue needs to live beside our tables: where they are, and the role to read and write them by."""

    dsn: str = field(repr=False)
    display_url: str
    schema: str
    role: str
    uses_prepared_statements: bool


class PostgresStore(SqlStore):
    """The store in a PostgreSQL database.

    >>> PostgresStore("postgresql://app:secret@db/prod").url
    'postgresql://db/prod'
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "tellback",
        pool_size: int = 10,
        statement_cache_size: int = 100,
    ) -> None:
        url = _without_password(dsn)
        options = PostgresOptions(dsn, url, schema, pool_size, statement_cache_size=statement_cache_size)
        self._options = options
        super().__init__(url, PostgresEngine(options), positions_after_commit=True)

    def queue_settings(self) -> QueueSettings:
        """How a queue of jobs reaches the same database."""
        options = self._options
        return QueueSettings(
            options.dsn, options.display_url, options.schema, APP_ROLE, options.statement_cache_size > 0
        )


def _without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
