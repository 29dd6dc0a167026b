"""The embedded store: one SQLite file."""

from tellback.stores.sqlite.engine import SqliteStore

__all__ = ["SqliteStore"]
