"""The store for many processes: a PostgreSQL database."""

from tellback.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
