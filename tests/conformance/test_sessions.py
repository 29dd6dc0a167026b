"""Every session adapter keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recollect import Recollect
from recollect.stores.sessions.kept import KeptSessions
from recollect.stores.sessions.memory import InMemoryAdapter
from recollect.testing.sessions import MakeAdapter, SessionAdapterConformance


class TestInMemory(SessionAdapterConformance):
    shared = False
    connects = False

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        return lambda prefix="one", **ttls: InMemoryAdapter(**ttls)


class _InARecollect(SessionAdapterConformance):
    expires = False

    @pytest.fixture
    def make_adapter(self, rc: Recollect) -> MakeAdapter:
        return lambda prefix="one", **ttls: KeptSessions(rc.store, tenant_id="acme", app_id=prefix)


class TestInARecollectOnSqlite(_InARecollect):
    @pytest.fixture
    async def rc(self, tmp_path: Path) -> AsyncIterator[Recollect]:
        async with Recollect(tmp_path / "recollect.db", worker=False) as rc:
            yield rc


class TestInARecollectOnPostgres(_InARecollect):
    @pytest.fixture
    async def rc(self, postgres_url: str) -> AsyncIterator[Recollect]:
        async with Recollect(postgres_url, worker=False) as rc:
            yield rc
