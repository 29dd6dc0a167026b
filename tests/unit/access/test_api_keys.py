"""Keys that are held for some seconds: how often the store is asked, and what is never given."""

from __future__ import annotations

import asyncio

import pytest

from tellback.access import api_keys as held_keys
from tellback.access.api_keys import ApiKeyCache, Keys
from tellback.errors import NotAuthenticatedError, StoreUnavailableError
from tellback.stores import StoredKey, open_store
from tellback.types.access import ApiKey
from tellback.types.ids import clear_text_caches, utc_now


class FakeKeyStore:
    """Keys by id, and who asked for them; it may be slow, or fail."""

    def __init__(self) -> None:
        self.keys: dict[str, StoredKey] = {}
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.now = 0.0
        self.broken = False

    def put(self, id: str, name: str = "") -> StoredKey:
        self.keys[id] = StoredKey(ApiKey(id, name, "acme", "web", "app", utc_now()), "0" * 64)
        return self.keys[id]

    async def load(self, id: str) -> StoredKey | None:
        self.asked.append(id)
        found = self.keys.get(id)
        await self.open.wait()
        if self.broken:
            raise StoreUnavailableError("gone")
        return found

    def held(self, seconds: float = 5) -> ApiKeyCache:
        return ApiKeyCache(self.load, seconds, lambda: self.now)


async def test_a_key_is_asked_for_again_when_its_time_is_over() -> None:
    shelf = FakeKeyStore()
    stored, held = shelf.put("a"), shelf.held()
    for _ in range(3):
        assert await held.get("a") == stored
    assert shelf.asked == ["a"]
    shelf.now = 5
    changed = shelf.put("a", "changed")
    assert await held.get("a") == changed
    assert shelf.asked == ["a", "a"]


async def test_those_who_ask_at_once_ask_the_store_once() -> None:
    shelf = FakeKeyStore()
    stored, held = shelf.put("a"), shelf.held()
    shelf.open.clear()
    waiting = [asyncio.create_task(held.get(id)) for id in ("a", "b") * 10]
    await asyncio.sleep(0)
    waiting[0].cancel()  # whoever began it may go: others still get theirs
    await asyncio.sleep(0)
    shelf.open.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert found[1:] == [None, *([stored, None] * 9)]
    assert isinstance(found[0], asyncio.CancelledError)
    assert sorted(shelf.asked) == ["a", "b"]


async def test_a_failure_is_not_held_and_reaches_everyone() -> None:
    shelf = FakeKeyStore()
    stored, held = shelf.put("a"), shelf.held()
    shelf.broken = True
    found = await asyncio.gather(*(held.get("a") for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [StoreUnavailableError] * 3
    shelf.broken = False
    assert await held.get("a") == stored


async def test_what_was_read_before_a_key_was_forgotten_is_not_given_after() -> None:
    shelf = FakeKeyStore()
    shelf.put("a", "old")
    held = shelf.held()
    shelf.open.clear()
    early = asyncio.create_task(held.get("a"))
    await asyncio.sleep(0.01)
    new = shelf.put("a", "new")
    held.invalidate("a")
    late = asyncio.create_task(held.get("a"))
    await asyncio.sleep(0.01)
    shelf.open.set()
    assert (await early) != new
    assert await late == new
    assert await held.get("a") == new


async def test_what_is_held_is_bounded_and_garbage_drives_out_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_keys, "MAX_CACHED_KEYS", 3)
    monkeypatch.setattr(held_keys, "MAX_CACHED_MISSES", 5)
    shelf = FakeKeyStore()
    held = shelf.held()
    for id in "abc":
        shelf.put(id)
        await held.get(id)
    for number in range(50):
        assert await held.get(f"garbage{number}") is None
    assert len(held) == 8
    shelf.asked.clear()
    await held.get("a")
    assert shelf.asked == []
    shelf.put("d")
    await held.get("d")  # the one that was not used for longest goes
    await held.get("a")
    await held.get("b")
    assert shelf.asked == ["d", "b"]
    await held.get("garbage49")
    assert shelf.asked == ["d", "b"]


async def test_an_erasure_makes_all_be_asked_for_again() -> None:
    shelf = FakeKeyStore()
    shelf.put("a")
    held = shelf.held()
    await held.get("a")
    clear_text_caches()
    assert len(held) == 0


async def test_a_key_that_another_process_revoked_is_good_for_seconds_at_most() -> None:
    store, now = open_store(":memory:"), 0.0
    await store.open()
    keys = Keys(store.api_keys, utc_now, cache_seconds=5, timer=lambda: now)
    made = await keys.create()
    await keys.check(made.secret)
    await Keys(store.api_keys, utc_now).revoke(made.key.id)
    now = 4.9
    assert await keys.check(made.secret) == made.key
    now = 5.0
    with pytest.raises(NotAuthenticatedError, match="revoked"):
        await keys.check(made.secret)
    await store.close()
