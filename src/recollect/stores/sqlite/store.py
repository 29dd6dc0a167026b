"""`SqliteStore`: everything in one file."""

from __future__ import annotations

from recollect.stores.sqlite.connection import SqliteOptions
from recollect.stores.sqlite.engine import SqliteEngine
from recollect.stores.store import SqlStore


class SqliteStore(SqlStore):
    """The store in one SQLite file, or in memory with ":memory:".

    >>> SqliteStore("recollect.db").url
    'sqlite:///recollect.db'
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
        super().__init__(f"sqlite:///{path}", engine, sequenced=False)
