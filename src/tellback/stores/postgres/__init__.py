"""The store in a PostgreSQL database, for many processes: its engine, connections and schema.

Only `open_store` and the queue of jobs import it, as it needs asyncpg.
"""

from tellback.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
