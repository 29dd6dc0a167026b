"""API keys over REST: an admin manages the keys of its own tenant and app only."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.wire.values import ApiKeyWire, NewApiKeyWire
from tests.support import tokens
from tests.support.http_server import app_client


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False) as opened:
        yield opened


@pytest.fixture
def app(tb: Tellback) -> Any:
    return create_app(tb, ServerSettings(), opens=False)


@pytest.fixture
async def admin(tb: Tellback, app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    created = await tb.keys.create("admin", tenant_id="acme", app_id="shop")
    async with app_client(app, created.secret) as client:
        yield client


async def test_a_created_key_works_for_its_tenant_and_app(admin: httpx2.AsyncClient, app: Any) -> None:
    answer = await admin.post("/ai-admin/keys", json={"role": "user", "userId": "maya", "name": "phone"})
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    created = NewApiKeyWire.model_validate(answer.json()).value()
    assert (created.key.tenant_id, created.key.app_id, created.key.user_id) == ("acme", "shop", "maya")
    async with app_client(app, created.secret) as phone:
        response = await phone.post("/ai-conversations", json={"namespace": "chat"})
    assert response.json()["userId"] == "maya"
    assert response.json()["tenantId"] == "acme"


async def test_a_secret_is_returned_only_once(admin: httpx2.AsyncClient) -> None:
    created = (await admin.post("/ai-admin/keys", json={}, headers={"Idempotency-Key": "k"})).json()
    repeated = await admin.post("/ai-admin/keys", json={}, headers={"Idempotency-Key": "k"})
    assert repeated.json()["secret"] != created["secret"]
    for path in ("/ai-admin/keys", f"/ai-admin/keys/{created['key']['id']}"):
        assert created["secret"] not in (await admin.get(path)).text


async def test_keys_are_listed_in_pages(admin: httpx2.AsyncClient) -> None:
    ids = [(await admin.post("/ai-admin/keys", json={})).json()["key"]["id"] for _ in range(3)]
    first = (await admin.get("/ai-admin/keys", params={"limit": 2})).json()
    second = (await admin.get("/ai-admin/keys", params={"limit": 2, "cursor": first["nextCursor"]})).json()
    assert second["nextCursor"] is None
    assert [each["id"] for each in first["items"] + second["items"]][1:] == ids


async def test_a_revoked_key_is_rejected(admin: httpx2.AsyncClient, app: Any) -> None:
    created = (await admin.post("/ai-admin/keys", json={})).json()
    revoked = await admin.delete(f"/ai-admin/keys/{created['key']['id']}")
    assert ApiKeyWire.model_validate(revoked.json()).value().revoked_at is not None
    async with app_client(app, created["secret"], "maya") as client:
        assert (await client.get("/ai-conversations")).status_code == 401


async def test_keys_of_another_tenant_are_not_found(tb: Tellback, admin: httpx2.AsyncClient) -> None:
    for tenant_id, app_id in (("globex", "shop"), ("acme", "default")):
        created = await tb.keys.create("app", tenant_id=tenant_id, app_id=app_id)
        assert (await admin.get(f"/ai-admin/keys/{created.key.id}")).status_code == 404
        assert (await admin.delete(f"/ai-admin/keys/{created.key.id}")).status_code == 404
        assert (await tb.keys.check(created.secret)).id == created.key.id
        assert created.key.id not in (await admin.get("/ai-admin/keys")).text


async def test_a_limited_key_cannot_create_a_key_with_a_higher_limit(tb: Tellback, app: Any) -> None:
    end = datetime(2099, 1, 1, tzinfo=UTC)
    limited = await tb.keys.create("admin", expires_at=end, rate_limit=5)
    async with app_client(app, limited.secret) as client:
        created = (await client.post("/ai-admin/keys", json={"role": "admin"})).json()["key"]
        less = {"rateLimit": 4, "expiresAt": "2098-01-01T00:00:00Z"}
        assert (await client.post("/ai-admin/keys", json=less)).json()["key"]["rateLimit"] == 4
        for fields in ({"rateLimit": 6}, {"expiresAt": "2099-01-01T00:00:01Z"}):
            response = await client.post("/ai-admin/keys", json=fields)
            assert (response.status_code, response.json()["code"]) == (403, "not-allowed")
            assert "your own credential" in response.json()["detail"]
    assert (created["rateLimit"], created["expiresAt"]) == (5, "2099-01-01T00:00:00Z")


@pytest.mark.parametrize("seconds", [300, 5 * 10**11])
async def test_a_token_cannot_create_a_key_that_expires_later(tb: Tellback, seconds: int) -> None:
    app = create_app(tb, ServerSettings(jwt=tokens.settings(leeway_seconds=10)), opens=False)
    expires = int(time.time()) + seconds
    async with app_client(app, tokens.token(role="admin", sub="root", exp=expires)) as client:
        created = (await client.post("/ai-admin/keys", json={"role": "admin"})).json()
        later_response = await client.post("/ai-admin/keys", json={"expiresAt": "2099-01-01T00:00:00Z"})
    last = datetime.fromtimestamp(expires + 10, UTC) if seconds == 300 else datetime.max.replace(tzinfo=UTC)
    assert NewApiKeyWire.model_validate(created).value().key.expires_at == last
    assert later_response.status_code == (403 if seconds == 300 else 201)
    async with app_client(app, created["secret"]) as client:
        key = (await client.post("/ai-admin/keys", json={"role": "admin"})).json()["key"]
    assert key["expiresAt"] == created["key"]["expiresAt"]


async def test_an_unlimited_key_can_create_keys_with_any_limit(admin: httpx2.AsyncClient) -> None:
    fields = {"rateLimit": 1_000_000, "expiresAt": "2099-01-01T00:00:00Z"}
    assert (await admin.post("/ai-admin/keys", json=fields)).status_code == 201
    created = (await admin.post("/ai-admin/keys", json={})).json()["key"]
    assert (created["rateLimit"], created["expiresAt"]) == (None, None)


@pytest.mark.parametrize("role", ["app", "user"])
async def test_managing_keys_needs_an_admin(tb: Tellback, app: Any, role: Any) -> None:
    created = await tb.keys.create(role, tenant_id="acme", user_id="maya" if role == "user" else None)
    async with app_client(app, created.secret) as client:
        assert (await client.post("/ai-admin/keys", json={})).status_code == 403
        assert (await client.get("/ai-admin/keys")).status_code == 403
        assert (await client.delete(f"/ai-admin/keys/{created.key.id}")).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"tenantId": "globex"},
        {"appId": "other"},
        {"role": "root"},
        {"role": "user"},
        {"role": "app", "userId": "maya"},
        {"rateLimit": 0},
        {"rateLimit": 10**30},
        {"expiresAt": "2020-01-01T00:00:00Z"},
        {"expiresAt": "tomorrow"},
        {"name": "x" * 201},
        {"name": "\x00"},
    ],
)
async def test_invalid_keys_are_rejected(admin: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    assert (await admin.post("/ai-admin/keys", json=body)).status_code == 422
