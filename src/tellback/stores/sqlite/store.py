"""`SqliteStore`: everything in one file."""

from __future__ import annotations

from tellback.stores.sqlite.connection import SqliteOptions
from tellback.stores.sqlite.engine import SqliteEngine
from tellback.stores.store import SqlStore


class SqliteStore(SqlStore):
    """The store in one SQLite file, or in memory with ":memory:".

    >>> SqliteStore("tellback.db").url
    'sqlite:///tellback.db'
    """

    def __init__(
        self,
        path: str,
        *,
        synchronous: str = "normal",
        busy_timeout: float = 10.0,
        read_only: bool = False,
    ) -> None:
        engine = SqliteEngine(SqliteOptions(path, synchronous, busy_timeout, read_only))
        super().__init__(f"sqlite:///{path}", engine, positions_after_commit=False)
