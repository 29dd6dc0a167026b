"""What every session adapter must do, as tests: run them on an adapter of your own.

    class TestMyAdapter(SessionAdapterConformance):
        @pytest.fixture
        def make_adapter(self, tmp_path):
            return lambda prefix="one", **ttls: MyAdapter(tmp_path / "data", prefix=prefix, **ttls)

The storage is empty when a test begins. Each call makes another adapter of it, with connections of its own. The tests
need pytest and pytest-asyncio. `shared = False` is for adapters that keep things to themselves. What a server must
stand is in `SessionRestartConformance`, which also needs a fixture `server` with `kill()` and `start()`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tellback.sessions.adapter import PersistenceAdapter
from tellback.testing.sessions.lifecycle import (
    ConnectionContract,
    ExpiryContract,
    PrefixContract,
    RestartContract,
    SaveContract,
)
from tellback.testing.sessions.repositories import (
    MakeAdapter,
    MessageRepositoryContract,
    Restartable,
    SessionRepositoryContract,
)

__all__ = ["MakeAdapter", "Restartable", "SessionAdapterConformance", "SessionRestartConformance"]


class _AdapterFixtures:
    shared = True

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        """Makes adapters of the storage under test."""
        raise NotImplementedError("give your test class a fixture make_adapter")

    @pytest.fixture
    async def adapter(self, make_adapter: MakeAdapter) -> AsyncIterator[PersistenceAdapter]:
        """An adapter, initialized."""
        adapter = make_adapter()
        await adapter.initialize()
        yield adapter
        await adapter.disconnect()

    @pytest.fixture
    async def second(self, make_adapter: MakeAdapter, adapter: PersistenceAdapter) -> AsyncIterator[PersistenceAdapter]:
        """Another one of the same storage: another process, as it were."""
        if not self.shared:
            pytest.skip("this adapter keeps things to itself")
        second = make_adapter()
        await second.initialize()
        yield second
        await second.disconnect()


@pytest.mark.asyncio
class SessionAdapterConformance(
    _AdapterFixtures,
    SessionRepositoryContract,
    MessageRepositoryContract,
    SaveContract,
    PrefixContract,
    ExpiryContract,
    ConnectionContract,
):
    """The contract of `tellback.sessions.PersistenceAdapter`."""


@pytest.mark.asyncio
class SessionRestartConformance(_AdapterFixtures, RestartContract):
    """What becomes of an adapter whose server is killed and started again."""

    @pytest.fixture
    def server(self) -> Restartable:
        """The server of the storage under test; it is the test's own."""
        raise NotImplementedError("give your test class a fixture server")
