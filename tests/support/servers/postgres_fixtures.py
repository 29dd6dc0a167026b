"""Fixtures for tests that need PostgreSQL: one server for the whole run, a database for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.servers.base import SERVER_VERSIONS
from tests.support.servers.database_pool import Connection, DatabasePool
from tests.support.servers.postgres import PostgresServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server shared by all tests. Tests that stop or kill one start their own."""
    server = PostgresServer(durable=False)
    try:
        server.start()
        SERVER_VERSIONS[server.name] = server.version
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_admin(postgres_server: PostgresServer) -> Iterator[Connection]:
    """A connection that creates and drops databases."""
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres_url(postgres_server: PostgresServer, postgres_admin: Connection) -> Iterator[str]:
    """The URL of a new, empty database, dropped after the test."""
    name = f"test_{next(_numbers)}"
    postgres_admin.execute(f"CREATE DATABASE {name}")
    yield postgres_server.url(name)
    # FORCE: a test that failed may have left connections behind.
    postgres_admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def prepared_databases(postgres_server: PostgresServer, postgres_admin: Connection) -> Iterator[DatabasePool]:
    databases = DatabasePool(postgres_server, postgres_admin)
    yield databases
    databases.close()


@pytest.fixture
def ready_postgres_url(prepared_databases: DatabasePool) -> Iterator[str]:
    """The URL of a database with our tables, all empty: faster than creating them."""
    with prepared_databases.lend() as url:
        yield url
