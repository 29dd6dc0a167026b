"""API keys, and limits that processes share."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tellback.errors import NotFoundError
from tellback.stores import Store
from tellback.testing.stores.making import DAY, MAYA, NOON, OTHER_SCOPES, read_all_events
from tellback.types.access import ApiKey
from tellback.types.ids import new_id
from tellback.types.scope import Scope

DIGEST = "0123456789abcdef" * 4


def make_key(scope: Scope = MAYA, **fields: Any) -> ApiKey:
    """A key of one user."""
    key = ApiKey(new_id("key"), "Phone", scope.tenant_id, scope.app_id, "user", NOON, scope.user_id)
    return replace(key, **fields)


def make_app_key(scope: Scope = MAYA, **fields: Any) -> ApiKey:
    """A key for all users of an app."""
    return make_key(scope, **{"role": "app", "user_id": None, **fields})


class AccessContract:
    """`ApiKeys` and `RateWindows`."""

    async def test_a_key_is_kept_with_the_digest_of_its_secret(self, store: Store) -> None:
        key = make_key(name="Maya's phone 📱", expires_at=NOON + DAY, rate_limit=60)
        assert await store.api_keys.create(key, DIGEST) == key
        stored = await store.api_keys.get(key.id)
        assert stored is not None
        assert (stored.key, stored.digest) == (key, DIGEST)
        assert DIGEST not in repr(stored)
        assert await store.api_keys.get("key_of_nobody") is None

    async def test_keys_are_listed_by_tenant_and_app(self, store: Store) -> None:
        keys = [make_key(), make_app_key(), *(make_app_key(scope, role="admin") for scope in OTHER_SCOPES)]
        for key in keys:
            await store.api_keys.create(key, DIGEST)
        assert await store.api_keys.list_keys() == keys
        assert await store.api_keys.list_keys(tenant_id="acme", app_id="support") == keys[:3]
        assert await store.api_keys.list_keys(tenant_id="acme") == keys[:4]
        assert await store.api_keys.list_keys(app_id="support", tenant_id="globex") == keys[4:]
        assert await store.api_keys.list_keys(tenant_id="nobody") == []

    async def test_a_revoked_key_stays_revoked_since_then(self, store: Store) -> None:
        key = await store.api_keys.create(make_app_key(), DIGEST)
        revoked = await store.api_keys.revoke(key.id, now=NOON + DAY)
        assert revoked == replace(key, revoked_at=NOON + DAY)
        assert await store.api_keys.revoke(key.id, now=NOON + 2 * DAY) == revoked
        stored = await store.api_keys.get(key.id)
        assert stored is not None
        assert stored.key == revoked

    @pytest.mark.parametrize(
        "named", [{"tenant_id": "globex"}, {"app_id": "sales"}, {"tenant_id": "acme", "app_id": "x"}]
    )
    async def test_a_key_of_another_tenant_or_app_is_unknown(self, store: Store, named: dict[str, str]) -> None:
        key = await store.api_keys.create(make_app_key(), DIGEST)
        for _ in range(2):
            with pytest.raises(NotFoundError):
                await store.api_keys.revoke(key.id, **named, now=NOON)
            assert await store.api_keys.list_keys() == [key]
        await store.api_keys.revoke(key.id, tenant_id="acme", app_id="support", now=NOON)
        with pytest.raises(NotFoundError):
            await store.api_keys.revoke(key.id, **named, now=NOON)
        with pytest.raises(NotFoundError):
            await store.api_keys.revoke("key_of_nobody", now=NOON)

    async def test_keys_tell_of_themselves_to_whom_they_belong(self, store: Store) -> None:
        own, apps = make_key(), make_app_key()
        for key in (own, apps):
            await store.api_keys.create(key, DIGEST)
            for _ in range(2):
                await store.api_keys.revoke(key.id, now=NOON)
        told = [(event.type, event.subject_id, event.scope.user_id) for event in await read_all_events(store)]
        assert told == [
            *(("key.created", own.id, "maya"), ("key.revoked", own.id, "maya")),
            *(("key.created", apps.id, ""), ("key.revoked", apps.id, "")),
        ]

    async def test_erasing_a_user_deletes_that_users_keys_alone(self, store: Store) -> None:
        keys = [make_key(), make_app_key(), *(make_key(scope) for scope in OTHER_SCOPES)]
        for key in keys:
            await store.api_keys.create(key, DIGEST)
        erasure = await store.user_data.erase(MAYA, now=NOON)
        assert erasure.counts["api_keys"] == 1
        assert await store.api_keys.list_keys() == keys[1:]

    async def test_no_more_is_granted_in_a_window_than_there_is(self, store: Store) -> None:
        take = store.rate_windows.take
        assert [await take("key_1", 7, 4, 10) for _ in range(4)] == [4, 4, 2, 0]
        assert await take("key_2", 7, 20, 10) == 10
        assert await take("key_1", 8, 4, 10) == 4
        assert await take("key_1", 7, 4, 11) == 1
        assert await take("key_1", 7, 4, 5) == 0
        assert [await take("key_1", 9, *given) for given in ((0, 5), (-1, 5), (5, 0), (5, -1))] == [0, 0, 0, 0]
        assert await take("key_1", 9, 5, 5) == 5

    async def test_windows_are_apart_and_old_ones_are_forgotten(self, store: Store) -> None:
        take = store.rate_windows.take
        for window in range(100, 105):
            assert [await take("a", window, 3, 4), await take("b", window, 3, 4)] == [3, 3]
        assert [await take("a", window, 3, 4) for window in range(100, 105)] == [1] * 5
        assert await take("c", 120, 1, 4) == 1
        assert [await take(name, window, 3, 4) for name in "ab" for window in range(100, 105)] == [3] * 10

    async def test_openings_share_a_limit(self, store: Store, second: Store) -> None:
        asked = [opening.rate_windows.take("key_1", 1, 7, 100) for opening in (store, second) * 20]
        granted = await asyncio.gather(*asked)
        assert sum(granted) == 100
        assert sorted(granted, reverse=True) == [7] * 14 + [2] + [0] * 25
