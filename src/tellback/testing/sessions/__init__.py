"""The contract of every session adapter, as tests. Run them against your own adapter:

    class TestMyAdapter(SessionAdapterConformance):
        @pytest.fixture
        def make_adapter(self, tmp_path):
            return lambda prefix="one", **ttls: MyAdapter(tmp_path / "data", prefix=prefix, **ttls)

The storage must be empty when a test begins. Each call of `make_adapter` must return a new adapter for it, with its own
connections. The tests need pytest, and pytest-asyncio with `asyncio_mode = "auto"`. Set `shared = False` if adapters do
not share their data, `connects = False` if there is no connection to close, and `expires = False` if it never expires.
For adapters of a server, `SessionRestartConformance` tests crashes; it also needs a fixture `server` with `kill()` and
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
    """Tests of the contract of `tellback.sessions.PersistenceAdapter`.

    >>> from tellback.sessions import InMemoryAdapter
    >>> class TestMyAdapter(SessionAdapterConformance):
    ...     shared = connects = False
    ...     @pytest.fixture
    ...     def make_adapter(self):
    ...         return lambda prefix="one", **ttls: InMemoryAdapter(**ttls)
    """


@pytest.mark.asyncio
class SessionRestartConformance(RestartContract):
    """Tests of an adapter whose server is killed and started again.

    >>> from tellback.sessions import RedisAdapter
    >>> class TestMyServer(SessionRestartConformance):
    ...     @pytest.fixture
    ...     def make_adapter(self, server):
    ...         return lambda prefix="one", **ttls: RedisAdapter(server.url, key_prefix=prefix, **ttls)
    ...     @pytest.fixture
    ...     def server(self, my_redis):  # a fixture of yours: an object with `url`, `kill()` and `start()`
    ...         return my_redis
    """

    @pytest.fixture
    def server(self) -> Restartable:
        """The server of the storage under test, used by this test alone."""
        raise NotImplementedError("define the fixture server in your test class")
