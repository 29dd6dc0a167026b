"""What every worker must do, as tests: run them on a store of your own.

    class TestMyWorkers(JobConformance):
        @pytest.fixture
        def store_url(self, tmp_path):
            return str(tmp_path / "tellback.db")

The storage is empty when a test begins. `shared = False` leaves out what needs several processes. The tests need pytest
and pytest-asyncio.
"""

from __future__ import annotations

import pytest

from tellback.testing.jobs.conformance import CrashContract, OutcomeContract, RunningContract

__all__ = ["JobConformance"]


@pytest.mark.asyncio
class JobConformance(OutcomeContract, RunningContract, CrashContract):
    """The contract of a worker on a store."""
