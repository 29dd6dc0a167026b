"""`tb`: a Tellback on each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tellback import Tellback


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return ":memory:"
    if request.param == "sqlite":
        return str(tmp_path / "tellback.db")
    found: str = request.getfixturevalue("ready_postgres_url")
    return found


@pytest.fixture
async def tb(url: str) -> AsyncIterator[Tellback]:
    async with Tellback(url) as opened:
        yield opened
