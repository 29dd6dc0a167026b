"""Stores for tests of failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of each kind."""
    return _url(request, tmp_path, "ready_postgres_url")


@pytest.fixture(params=["sqlite", "postgres"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store of each kind that was never opened."""
    return _url(request, tmp_path, "postgres_url")


def _url(request: pytest.FixtureRequest, folder: Path, on_postgres: str) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{folder}/tellback.db"
    fixture_url: str = request.getfixturevalue(on_postgres)
    return fixture_url


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop, kill and restart."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()
