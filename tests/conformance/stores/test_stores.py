"""The conformance suite for stores, on SQLite, SQLite in memory and PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tellback.stores import open_store
from tellback.testing.stores import MakeStore, StoreConformance


class TestSqlite(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: open_store(tmp_path / "tellback.db")


class TestSqliteWithFullSynchronisation(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: open_store(f"sqlite:///{tmp_path}/tellback.db?synchronous=full")


class TestMemory(StoreConformance):
    shared = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return lambda: open_store(":memory:")


class TestPostgres(StoreConformance):
    @pytest.fixture
    def make_store(self, ready_postgres_url: str) -> MakeStore:
        return lambda: open_store(ready_postgres_url)
