"""Fixtures for tests that need PostgreSQL: one server for the whole run, an empty database for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer
from tests.support.servers.versions import VERSIONS

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server that every test shares: tests that stop or kill one start their own."""
    server = PostgresServer(durable=False)
    try:
        server.start()
        VERSIONS[server.name] = server.version
        yield server
    finally:
        server.remove()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database that is gone after the test."""
    name = f"test_{next(_numbers)}"
    postgres_server.psql(f"CREATE DATABASE {name}")
    yield postgres_server.url(name)
    # FORCE: a test that failed may have left connections behind.
    postgres_server.psql(f"DROP DATABASE {name} WITH (FORCE)")
