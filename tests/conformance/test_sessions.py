"""Every session adapter keeps the contract."""

from __future__ import annotations

import pytest

from recollect.stores.sessions.memory import InMemoryAdapter
from recollect.testing.sessions import MakeAdapter, SessionAdapterConformance


class TestInMemory(SessionAdapterConformance):
    shared = False
    connects = False

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        return lambda prefix="one", **ttls: InMemoryAdapter(**ttls)
