"""The contract of a worker on any store, as tests. Run them against your own store:

    class TestMyWorkers(JobConformance):
        @pytest.fixture
        def store_url(self, tmp_path):
            return str(tmp_path / "tellback.db")

The storage must be empty when a test begins. Set `shared = False` to skip the tests that need several processes. The
tests need pytest and pytest-asyncio.
"""

from __future__ import annotations

import pytest

from tellback.testing.jobs.conformance import CrashContract, OutcomeContract, RunningContract

__all__ = ["JobConformance"]


@pytest.mark.asyncio
class JobConformance(OutcomeContract, RunningContract, CrashContract):
    """Tests of the contract of a worker on a store.

    >>> class TestMyWorkers(JobConformance):
    ...     @pytest.fixture
    ...     def store_url(self, tmp_path):
    ...         return str(tmp_path / "tellback.db")
    """
