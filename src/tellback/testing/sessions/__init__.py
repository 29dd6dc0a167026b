"""The contract of every session adapter, as tests. Run them against your own adapter:

    class TestMyAdapter(SessionAdapterConformance):
        @pytest.fixture
        def make_adapter(self, tmp_path):
            return lambda prefix="one", **ttls: MyAdapter(tmp_path / "data", prefix=prefix, **ttls)

The storage must be empty when a test begins. Each call of `make_adapter` must return a new adapter for it, with its own
connections. The tests need pytest and pytest-asyncio. Set `shared = False` if adapters do not share their data. For
adapters of a server, `SessionRestartConformance` tests crashes; it also needs a fixture `server` with `kill()` and
`start()`.
"""

from __future__ import annotations

import pytest

from tellback.testing.sessions.lifecycle import ExpiryContract, LifecycleContract, RestartContract, SaveContract
from tellback.testing.sessions.repositories import (
    MakeAdapter,
    MessageRepositoryContract,
    Restartable,
    SessionRepositoryContract,
)

__all__ = ["MakeAdapter", "Restartable", "SessionAdapterConformance", "SessionRestartConformance"]


@pytest.mark.asyncio
class SessionAdapterConformance(
    SessionRepositoryContract, MessageRepositoryContract, SaveContract, ExpiryContract, LifecycleContract
):
    """Tests of the contract of `tellback.sessions.PersistenceAdapter`."""


@pytest.mark.asyncio
class SessionRestartConformance(RestartContract):
    """Tests of an adapter whose server is killed and started again."""

    @pytest.fixture
    def server(self) -> Restartable:
        """The server of the storage under test, used by this test alone."""
        raise NotImplementedError("define the fixture server in your test class")
