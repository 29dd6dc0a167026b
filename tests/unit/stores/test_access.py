"""Expired responses are deleted automatically, in batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tellback.stores import Store, open_store
from tellback.stores.operations.access import CLEANUP_BATCH
from tellback.types.access import Scope

MAYA = Scope("acme", "web", "maya")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def list_keys(store: Store) -> list[str]:
    return [record["key"] async for record in store.user_data.records(MAYA, "idempotent_responses")]


async def begin(store: Store, key: str, now: datetime) -> None:
    await store.idempotency.begin(MAYA, key, "f", now=now, lease_until=now)


async def test_begin_deletes_all_expired_responses_in_batches(tmp_path: Path) -> None:
    store = open_store(tmp_path / "r.db")
    await store.open()
    for number in range(2 * CLEANUP_BATCH + 10):
        await begin(store, f"old{number:03}", NOON)
    await store.close()
    reopened = open_store(tmp_path / "r.db")
    await reopened.open()
    remaining = []
    for number in range(4):
        await begin(reopened, f"new{number}", NOON + timedelta(hours=25))
        remaining.append(sum(key.startswith("old") for key in await list_keys(reopened)))
    assert remaining == [CLEANUP_BATCH + 10, 10, 0, 0]
    assert await list_keys(reopened) == [f"new{number}" for number in range(4)]
    await reopened.close()


async def test_begin_keeps_unexpired_responses(tmp_path: Path) -> None:
    store = open_store(tmp_path / "r.db")
    await store.open()
    await begin(store, "a", NOON)
    await begin(store, "b", NOON + timedelta(hours=23))
    assert await list_keys(store) == ["a", "b"]
    await store.close()
