"""Old answers go by themselves, a few at a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tellback.stores import Store, open_store
from tellback.stores.operations.access import CLEANUP_BATCH
from tellback.types.access import Scope

MAYA = Scope("acme", "web", "maya")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def kept(store: Store) -> list[str]:
    return [record["key"] async for record in store.user_data.records(MAYA, "idempotent_responses")]


async def begin(store: Store, key: str, now: datetime) -> None:
    await store.idempotency.begin(MAYA, key, "f", now=now, lease_until=now)


async def test_beginning_forgets_what_is_too_old_until_nothing_is(tmp_path: Path) -> None:
    store = open_store(tmp_path / "r.db")
    await store.open()
    for number in range(2 * CLEANUP_BATCH + 10):
        await begin(store, f"old{number:03}", NOON)
    await store.close()
    later = open_store(tmp_path / "r.db")
    await later.open()
    left = []
    for number in range(4):
        await begin(later, f"new{number}", NOON + timedelta(hours=25))
        left.append(sum(key.startswith("old") for key in await kept(later)))
    assert left == [CLEANUP_BATCH + 10, 10, 0, 0]
    assert await kept(later) == [f"new{number}" for number in range(4)]
    await later.close()


async def test_what_is_young_enough_stays(tmp_path: Path) -> None:
    store = open_store(tmp_path / "r.db")
    await store.open()
    await begin(store, "a", NOON)
    await begin(store, "b", NOON + timedelta(hours=23))
    assert await kept(store) == ["a", "b"]
    await store.close()
