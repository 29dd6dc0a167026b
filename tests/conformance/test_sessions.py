"""Every session adapter keeps the contract."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recollect import InMemoryAdapter, PostgresAdapter, Recollect, SqliteAdapter
from recollect.testing.sessions import MakeAdapter, SessionAdapterConformance


@pytest.mark.backend("In memory", "this process")
class TestInMemory(SessionAdapterConformance):
    shared = False
    connects = False

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        return lambda prefix="one", **ttls: InMemoryAdapter(**ttls)


@pytest.mark.backend("SQLite", sqlite3.sqlite_version)
class TestInARecollectOnSqlite(SessionAdapterConformance):
    expires = False

    @pytest.fixture
    def make_adapter(self, rc: Recollect) -> MakeAdapter:
        return lambda prefix="one", **ttls: SqliteAdapter(rc, app_id=prefix)

    @pytest.fixture
    async def rc(self, tmp_path: Path) -> AsyncIterator[Recollect]:
        async with Recollect(tmp_path / "recollect.db", worker=False) as rc:
            yield rc


@pytest.mark.backend("PostgreSQL")
class TestInARecollectOnPostgres(SessionAdapterConformance):
    expires = False

    @pytest.fixture
    def make_adapter(self, rc: Recollect) -> MakeAdapter:
        return lambda prefix="one", **ttls: PostgresAdapter(rc, app_id=prefix)

    @pytest.fixture
    async def rc(self, ready_postgres_url: str) -> AsyncIterator[Recollect]:
        async with Recollect(ready_postgres_url, worker=False) as rc:
            yield rc
