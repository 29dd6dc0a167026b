"""The store in a PostgreSQL database, for many processes: its engine, connections and schema.

Only `open_store`, the session adapter and the job queue import it, because it needs asyncpg.
"""

from tellback.errors import MissingExtraError

try:
    from tellback.stores.postgres.engine import PostgresStore, QueueSettings
except ModuleNotFoundError as error:
    raise MissingExtraError("asyncpg", "postgres", "The PostgreSQL store") from error

__all__ = ["PostgresStore", "QueueSettings"]
