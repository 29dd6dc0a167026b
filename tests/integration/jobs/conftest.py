"""A PostgreSQL store for tests of its queue."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tellback.stores import open_store
from tellback.stores.postgres import PostgresStore


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = open_store(postgres_url)
    assert isinstance(store, PostgresStore)
    await store.open()
    yield store
    await store.close()
