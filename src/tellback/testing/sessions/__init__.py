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
    """The contract of `tellback.sessions.PersistenceAdapter`."""


@pytest.mark.asyncio
class SessionRestartConformance(RestartContract):
    """What becomes of an adapter whose server is killed and started again."""

    @pytest.fixture
    def server(self) -> Restartable:
        """The server of the storage under test; it is the test's own."""
        raise NotImplementedError("give your test class a fixture server")
