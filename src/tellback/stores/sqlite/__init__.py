"""The store in one SQLite file, or in memory: its engine, writer thread and connections.

Only `open_store` and tools that inspect a file import it.
"""

from tellback.stores.sqlite.engine import SqliteStore

__all__ = ["SqliteStore"]
