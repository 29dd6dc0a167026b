"""The cache of API keys: number of queries, and stale keys that must not be returned."""

from __future__ import annotations

import asyncio

import pytest

from tellback import api_keys as api_keys_module
from tellback.api_keys import ApiKeyCache, Keys
from tellback.errors import NotAuthenticatedError, StoreUnavailableError
from tellback.stores import StoredKey, open_store
from tellback.types.access import ApiKey
from tellback.types.ids import clear_text_caches, utc_now


class FakeKeyStore:
    """A key store that counts reads, and may be slow or fail."""

    def __init__(self) -> None:
        self.keys: dict[str, StoredKey] = {}
        self.loaded_ids: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.now = 0.0
        self.broken = False

    def put(self, id: str, name: str = "") -> StoredKey:
        self.keys[id] = StoredKey(ApiKey(id, name, "acme", "web", "app", utc_now()), "0" * 64)
        return self.keys[id]

    async def load(self, id: str) -> StoredKey | None:
        self.loaded_ids.append(id)
        found = self.keys.get(id)
        await self.open.wait()
        if self.broken:
            raise StoreUnavailableError("gone")
        return found

    def cache(self, seconds: float = 5) -> ApiKeyCache:
        return ApiKeyCache(self.load, seconds, lambda: self.now)


async def test_a_cached_key_is_read_again_after_its_time_to_live() -> None:
    key_store = FakeKeyStore()
    stored, cache = key_store.put("a"), key_store.cache()
    for _ in range(3):
        assert await cache.get("a") == stored
    assert key_store.loaded_ids == ["a"]
    key_store.now = 5
    changed = key_store.put("a", "changed")
    assert await cache.get("a") == changed
    assert key_store.loaded_ids == ["a", "a"]


async def test_concurrent_checks_read_the_store_once() -> None:
    key_store = FakeKeyStore()
    stored, cache = key_store.put("a"), key_store.cache()
    key_store.open.clear()
    waiting = [asyncio.create_task(cache.get(id)) for id in ("a", "b") * 10]
    await asyncio.sleep(0)
    waiting[0].cancel()  # the first caller is cancelled; others still get the key
    await asyncio.sleep(0)
    key_store.open.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert found[1:] == [None, *([stored, None] * 9)]
    assert isinstance(found[0], asyncio.CancelledError)
    assert sorted(key_store.loaded_ids) == ["a", "b"]


async def test_a_store_failure_reaches_all_callers_and_is_not_cached() -> None:
    key_store = FakeKeyStore()
    stored, cache = key_store.put("a"), key_store.cache()
    key_store.broken = True
    found = await asyncio.gather(*(cache.get("a") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnavailableError] * 3
    key_store.broken = False
    assert await cache.get("a") == stored


async def test_a_read_that_began_before_a_revocation_is_not_cached() -> None:
    key_store = FakeKeyStore()
    key_store.put("a", "old")
    cache = key_store.cache()
    key_store.open.clear()
    early = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0.01)
    new = key_store.put("a", "new")
    cache.invalidate("a")
    late = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0.01)
    key_store.open.set()
    assert (await early) != new
    assert await late == new
    assert await cache.get("a") == new


async def test_the_cache_is_bounded_and_invalid_secrets_evict_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys_module, "MAX_CACHED_KEYS", 3)
    monkeypatch.setattr(api_keys_module, "MAX_CACHED_MISSES", 5)
    key_store = FakeKeyStore()
    cache = key_store.cache()
    for id in "abc":
        key_store.put(id)
        await cache.get(id)
    for number in range(50):
        assert await cache.get(f"garbage{number}") is None
    assert len(cache) == 8
    key_store.loaded_ids.clear()
    await cache.get("a")
    assert key_store.loaded_ids == []
    key_store.put("d")
    await cache.get("d")  # the least recently used key is evicted
    await cache.get("a")
    await cache.get("b")
    assert key_store.loaded_ids == ["d", "b"]
    await cache.get("garbage49")
    assert key_store.loaded_ids == ["d", "b"]


async def test_an_erasure_clears_the_cache() -> None:
    key_store = FakeKeyStore()
    key_store.put("a")
    cache = key_store.cache()
    await cache.get("a")
    clear_text_caches()
    assert len(cache) == 0


async def test_a_key_revoked_by_another_process_expires_within_seconds() -> None:
    store, now = open_store(":memory:"), 0.0
    await store.open()
    keys = Keys(store.api_keys, utc_now, cache_seconds=5, timer=lambda: now)
    new_key = await keys.create()
    await keys.check(new_key.secret)
    await Keys(store.api_keys, utc_now).revoke(new_key.key.id)
    now = 4.9
    assert await keys.check(new_key.secret) == new_key.key
    now = 5.0
    with pytest.raises(NotAuthenticatedError, match="revoked"):
        await keys.check(new_key.secret)
    await store.close()
