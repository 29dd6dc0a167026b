"""`SqlAlchemyAdapter` passes the conformance suite: on SQLite with aiosqlite, on PostgreSQL with asyncpg."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tellback.testing.sessions import MakeAdapter, SessionAdapterConformance, SessionRestartConformance
from tests.integration.sessions.sqlalchemy_databases import (
    asyncpg_url,
    fresh_database,
    make_adapter_factory,
    sqlite_url,
)
from tests.support.servers.postgres import PostgresServer


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database shared by all tests: each test has its own tables."""
    yield from fresh_database(postgres_server)


@pytest.mark.backend("SQLAlchemy", f"SQLite {sqlite3.sqlite_version}")
class TestSqlAlchemyOnSqlite(SessionAdapterConformance):
    @pytest.fixture
    def make_adapter(self, tmp_path: Path) -> MakeAdapter:
        return make_adapter_factory(sqlite_url(tmp_path))


@pytest.mark.backend("SQLAlchemy", "PostgreSQL")
class TestSqlAlchemyOnPostgres(SessionAdapterConformance):
    @pytest.fixture
    def make_adapter(self, database: str) -> MakeAdapter:
        return make_adapter_factory(database)


@pytest.mark.backend("SQLAlchemy", "PostgreSQL")
class TestSqlAlchemyOnPostgresRestart(SessionRestartConformance):
    @pytest.fixture
    def server(self, own_postgres: PostgresServer) -> PostgresServer:
        return own_postgres

    @pytest.fixture
    def make_adapter(self, server: PostgresServer) -> MakeAdapter:
        return make_adapter_factory(asyncpg_url(server.url()))
