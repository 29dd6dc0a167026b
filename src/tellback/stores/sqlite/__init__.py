"""The embedded store: one SQLite file."""

from tellback.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
