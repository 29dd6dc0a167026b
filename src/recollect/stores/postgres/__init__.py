"""The store for many processes: a PostgreSQL database."""

from recollect.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
