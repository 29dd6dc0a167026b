"""Stores for tests that are unkind to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/recollect.db"
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop, kill and start again."""
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()
