"""The conformance suite for workers, on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellback.testing.jobs import JobConformance

pytestmark = pytest.mark.slow


class TestSqlite(JobConformance):
    @pytest.fixture
    def store_url(self, tmp_path: Path) -> str:
        return str(tmp_path / "tellback.db")


class TestMemory(JobConformance):
    shared = False

    @pytest.fixture
    def store_url(self) -> str:
        return ":memory:"


class TestPostgres(JobConformance):
    @pytest.fixture
    def store_url(self, ready_postgres_url: str) -> str:
        return ready_postgres_url
