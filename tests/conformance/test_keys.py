"""`tb.keys` on each kind of store."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest

from tellback import InvalidArgumentError, NotFoundError, Tellback
from tellback.errors import NotAuthenticatedError
from tellback.types.access import NewApiKey
from tellback.types.ids import utc_now

DAY = timedelta(days=1)


async def test_a_secret_yields_its_key(tb: Tellback) -> None:
    created = await tb.keys.create("user", name="Phone", tenant_id="acme", app_id="web", user_id="maya", rate_limit=9)
    assert re.fullmatch(r"tb_[0-9a-f]{28}_[\w-]{43}", created.secret)
    assert created.secret.split("_")[1] == created.key.id.removeprefix("key_")
    assert created.secret not in repr(created)
    assert await tb.keys.check(created.secret) == created.key == await tb.keys.get(created.key.id)
    key = created.key
    assert (key.role, key.name, key.tenant_id, key.app_id, key.user_id) == ("user", "Phone", "acme", "web", "maya")
    assert (key.rate_limit, key.expires_at, key.revoked_at) == (9, None, None)


async def test_no_part_of_a_secret_is_stored(tb: Tellback) -> None:
    created = await tb.keys.create()
    stored = await tb.store.api_keys.get(created.key.id)
    assert stored is not None
    assert created.secret.split("_", 2)[2] not in f"{stored.key} {stored.digest}"
    assert len(stored.digest) == 64


def damaged_secrets(created: NewApiKey) -> list[Any]:
    last = "A" if created.secret[-2] != "A" else "B"
    other_id = created.secret[:4] + ("0" if created.secret[4] != "0" else "1") + created.secret[5:]
    return [
        *(
            "",
            "tb_",
            "letmein",
            created.key.id,
            created.secret[:-1],
            f"{created.secret}x",
            f" {created.secret}",
            None,
            7,
            b"tb_",
        ),
        *(created.secret[:-2] + last + created.secret[-1], other_id, created.secret.upper(), created.secret + "\n"),
    ]


async def test_a_malformed_secret_is_rejected_and_not_repeated(tb: Tellback) -> None:
    created = await tb.keys.create()
    for wrong in damaged_secrets(created):
        with pytest.raises(NotAuthenticatedError) as caught:
            await tb.keys.check(wrong)
        assert "tb_0" not in str(caught.value)
    assert await tb.keys.check(created.secret) == created.key


async def test_a_wrong_secret_and_an_unknown_key_raise_the_same_error(tb: Tellback) -> None:
    created, unknown_secret = await tb.keys.create(), "tb_" + "0" * 28 + "_" + "x" * 43
    messages = set()
    for wrong in (unknown_secret, created.secret[:31] + "_" + "x" * 43):
        with pytest.raises(NotAuthenticatedError, match="unknown") as caught:
            await tb.keys.check(wrong)
        messages.add(str(caught.value))
    assert len(messages) == 1


async def test_a_key_expires_at_expires_at(tb: Tellback) -> None:
    now = utc_now()
    tb.clock = lambda: now
    created = [await tb.keys.create(expires_at=end) for end in (DAY, now + DAY, (now + DAY).isoformat())]
    assert {each.key.expires_at for each in created} == {now + DAY}
    now += DAY - timedelta(microseconds=1)
    for each in created:
        await tb.keys.check(each.secret)
    now += timedelta(microseconds=1)
    for each in created:
        with pytest.raises(NotAuthenticatedError, match="expired"):
            await tb.keys.check(each.secret)


async def test_a_revoked_key_is_rejected_immediately(tb: Tellback) -> None:
    created, other = await tb.keys.create(), await tb.keys.create()
    await tb.keys.check(created.secret)
    revoked = await tb.keys.revoke(created.key.id)
    assert revoked.revoked_at is not None
    assert not revoked.is_valid(utc_now())
    with pytest.raises(NotAuthenticatedError, match="revoked"):
        await tb.keys.check(created.secret)
    assert await tb.keys.revoke(created.key.id) == revoked
    assert await tb.keys.check(other.secret) == other.key


async def test_keys_of_another_tenant_are_neither_listed_nor_revoked(tb: Tellback) -> None:
    acme, globex = await tb.keys.create(tenant_id="acme"), await tb.keys.create("admin", tenant_id="globex")
    assert await tb.keys.list() == [acme.key, globex.key]
    assert await tb.keys.list("acme") == [acme.key]
    assert await tb.keys.list("acme", "web") == []
    with pytest.raises(NotFoundError):
        await tb.keys.revoke(globex.key.id, tenant_id="acme")
    assert await tb.keys.check(globex.secret) == globex.key


async def test_keys_of_an_erased_user_are_rejected_immediately(tb: Tellback) -> None:
    created, app = await tb.keys.create("user", user_id="maya"), await tb.keys.create()
    await tb.keys.check(created.secret)
    maya = tb.user("maya").admin
    assert [key["id"] for key in (await maya.export_user_data())["api_keys"]] == [created.key.id]
    assert (await maya.delete_user_data(confirm=True))["api_keys"] == 1
    with pytest.raises(NotAuthenticatedError, match="unknown"):
        await tb.keys.check(created.secret)
    assert await tb.keys.check(app.secret) == app.key


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"role": "root"}, "role"),
        ({"role": "user"}, "user_id"),
        ({"role": "app", "user_id": "maya"}, "not those of the role"),
        ({"role": "user", "user_id": "*"}, "user_id"),
        ({"tenant_id": ""}, "tenant_id"),
        ({"app_id": "*"}, "app_id"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\x00"}, "name"),
        ({"rate_limit": 0}, "rate_limit"),
        ({"rate_limit": True}, "rate_limit"),
        ({"expires_at": timedelta(0)}, "expires_at"),
        ({"expires_at": timedelta(days=-1)}, "expires_at"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2120-01-01T00:00:00"}, "expires_at"),
        ({"expires_at": timedelta.max}, "expires_at"),
    ],
)
async def test_invalid_key_arguments_raise(tb: Tellback, kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        await tb.keys.create(**kwargs)
    assert await tb.keys.list() == []


async def test_impossible_key_ids_are_not_found(tb: Tellback) -> None:
    bad: Any
    for bad in ("nothing", "\x00", "\ud800", None, 7):
        assert await tb.keys.get(bad) is None
        with pytest.raises(NotFoundError):
            await tb.keys.revoke(bad)


async def test_concurrent_checks_and_revocations_work(tb: Tellback) -> None:
    created = [await tb.keys.create() for _ in range(10)]
    assert await asyncio.gather(*(tb.keys.check(each.secret) for each in created * 5)) == [
        each.key for each in created * 5
    ]
    await asyncio.gather(*(tb.keys.revoke(each.key.id) for each in created))
    found = await asyncio.gather(*(tb.keys.check(each.secret) for each in created * 5), return_exceptions=True)
    assert all(isinstance(each, NotAuthenticatedError) for each in found)


def test_keys_work_from_synchronous_code() -> None:
    with Tellback(":memory:", worker=False) as tb:
        created = tb.keys.create()
        assert tb.keys.check(created.secret) == created.key
