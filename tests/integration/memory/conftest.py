"""Stores for tests of memory."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Yield an empty store of each kind that several processes can open."""
    if request.param == "sqlite":
        return str(tmp_path / "tellback.db")
    ready_url: str = request.getfixturevalue("ready_postgres_url")
    return ready_url
