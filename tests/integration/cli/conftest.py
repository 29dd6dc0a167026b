"""Fixtures of the tests that run the `tellback` command."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store, for each database."""
    if request.param == "sqlite":
        return str(tmp_path / "tellback.db")
    found: str = request.getfixturevalue("postgres_url")
    return found
