"""Sessions in the store of a `Tellback`: which adapter accepts which store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellback import Tellback
from tellback.errors import ConfigurationError
from tellback.sessions import PostgresAdapter, SqliteAdapter
from tellback.stores import Store
from tellback.stores.sqlite import SqliteStore


class ThirdPartyStore(Store):
    """A store of another project, under a URL of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__("elsewhere:///sessions", SqliteStore(str(path))._engine)


@pytest.mark.parametrize("adapter", [SqliteAdapter, PostgresAdapter])
async def test_both_adapters_accept_the_store_of_a_third_party(
    adapter: type[SqliteAdapter] | type[PostgresAdapter], tmp_path: Path
) -> None:
    async with Tellback(ThirdPartyStore(tmp_path / "x.db"), worker=False) as tb:
        sessions = adapter(tb)
        await sessions.initialize()
        assert await sessions.session_repository.get("web-42") is None


async def test_an_adapter_rejects_a_store_of_the_other_database() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        with pytest.raises(ConfigurationError, match=r"use SqliteAdapter\(tb\)"):
            PostgresAdapter(tb)
