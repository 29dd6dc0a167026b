"""Every session adapter passes the conformance suite."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tellback import Tellback
from tellback.sessions import InMemoryAdapter, PostgresAdapter, SqliteAdapter
from tellback.testing.sessions import MakeAdapter, SessionAdapterConformance

pytestmark = pytest.mark.slow


@pytest.mark.backend("In memory", "this process")
class TestInMemory(SessionAdapterConformance):
    shared = False
    connects = False

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        return lambda prefix="one", **ttls: InMemoryAdapter(**ttls)


@pytest.mark.backend("SQLite", sqlite3.sqlite_version)
class TestInATellbackOnSqlite(SessionAdapterConformance):
    expires = False

    @pytest.fixture
    def make_adapter(self, tb: Tellback) -> MakeAdapter:
        return lambda prefix="one", **ttls: SqliteAdapter(tb, app_id=prefix)

    @pytest.fixture
    async def tb(self, tmp_path: Path) -> AsyncIterator[Tellback]:
        async with Tellback(tmp_path / "tellback.db", worker=False) as tb:
            yield tb


@pytest.mark.backend("PostgreSQL")
class TestInATellbackOnPostgres(SessionAdapterConformance):
    expires = False

    @pytest.fixture
    def make_adapter(self, tb: Tellback) -> MakeAdapter:
        return lambda prefix="one", **ttls: PostgresAdapter(tb, app_id=prefix)

    @pytest.fixture
    async def tb(self, ready_postgres_url: str) -> AsyncIterator[Tellback]:
        async with Tellback(ready_postgres_url, worker=False) as tb:
            yield tb
