"""`/ai-admin` on every store: export, erasure, and admin operations on a single app."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import httpx2
import pytest

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.types.access import ApiKeyRole
from tellback.user import User
from tellback.wire.values import ErasedWire, JobWire, UsageRecordWire, UsageTotalWire
from tests.support.http_server import app_client
from tests.support.user_data import create_user_data

# The server behaves the same on a file and in memory, so the file is enough.
pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)

WORD = "Zanzibar"


@pytest.fixture
def app(tb: Tellback) -> Any:
    return create_app(tb, ServerSettings(), opens=False)


@pytest.fixture
async def maya(tb: Tellback) -> User:
    user = tb.user("maya", tenant_id="acme")
    await create_user_data(tb, user, WORD)
    await create_user_data(tb, tb.user("omar", tenant_id="acme"), "Oslo")
    await create_user_data(tb, tb.user("maya", tenant_id="globex"), "Madrid")
    return user


async def client(tb: Tellback, app: Any, role: ApiKeyRole, user: str | None = None) -> httpx2.AsyncClient:
    """Yield a client with a key for acme."""
    fixed = user if role == "user" else None
    created = await tb.keys.create(role, tenant_id="acme", user_id=fixed)
    return app_client(app, created.secret, None if role == "user" else user)


async def test_an_export_is_the_same_as_in_process(tb: Tellback, app: Any, maya: User) -> None:
    async with await client(tb, app, "user", "maya") as caller:
        answer = await caller.get("/ai-admin/export")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == 'attachment; filename="export.json"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    export, expected = answer.json(), await maya.admin.export_user_data()
    assert {**export, "exported_at": 0} == {**json.loads(json.dumps(expected)), "exported_at": 0}
    assert "Oslo" not in answer.text
    assert "Madrid" not in answer.text


async def test_an_export_can_be_a_zip(tb: Tellback, app: Any, maya: User) -> None:
    async with await client(tb, app, "app", "maya") as caller:
        answer = await caller.get("/ai-admin/export", params={"format": "zip"})
    assert answer.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        assert manifest["user"]["user_id"] == "maya"
        assert WORD.encode() in archive.read("atoms.jsonl")


async def test_an_erasure_deletes_the_users_data_and_keeps_that_of_others(tb: Tellback, app: Any, maya: User) -> None:
    async with await client(tb, app, "user", "maya") as caller:
        answer = await caller.post("/ai-admin/delete", json={"confirm": True}, headers={"Idempotency-Key": "once"})
    assert answer.status_code == 200
    erased = ErasedWire.model_validate(answer.json()).value()
    assert erased["messages"] > 0
    assert erased.job_ids
    remaining = await maya.admin.export_user_data()
    assert WORD not in json.dumps(remaining)
    assert remaining["idempotent_responses"] == []
    others = await tb.user("maya", tenant_id="globex").admin.export_user_data()
    assert others["conversations"]


async def test_an_admin_exports_and_erases_any_user_of_the_app(tb: Tellback, app: Any, maya: User) -> None:
    async with await client(tb, app, "admin") as admin:
        found = (await admin.get("/ai-admin/export", params={"userId": "omar"})).json()
        assert found["user"] == {"tenant_id": "acme", "app_id": "default", "user_id": "omar"}
        erase_response = await admin.post("/ai-admin/delete", json={"userId": "omar", "confirm": True})
        assert erase_response.json()["deleted"]["messages"] > 0
        assert (await admin.get("/ai-admin/export", params={"userId": "omar"})).json()["conversations"] == []
    assert (await maya.admin.export_user_data())["conversations"]


async def test_users_see_their_own_usage_and_admins_that_of_the_app(tb: Tellback, app: Any, maya: User) -> None:
    async with await client(tb, app, "user", "maya") as caller:
        [own_usage] = (await caller.get("/ai-admin/usage")).json()["items"]
        [total] = (await caller.get("/ai-admin/usage/totals")).json()["items"]
        assert (await caller.get("/ai-admin/usage", params={"everyone": True})).status_code == 403
    assert [UsageRecordWire.model_validate(own_usage).value()] == await maya.admin.usage()
    assert [UsageTotalWire.model_validate(total).value()] == await maya.admin.usage_totals()
    async with await client(tb, app, "admin") as admin:
        all_usage = (await admin.get("/ai-admin/usage", params={"everyone": True})).json()["items"]
        totals = (await admin.get("/ai-admin/usage/totals", params={"everyone": True})).json()["items"]
        omars_usage = (await admin.get("/ai-admin/usage", params={"userId": "omar"})).json()["items"]
    assert {each["userId"] for each in all_usage} == {each["userId"] for each in totals} == {"maya", "omar"}
    assert {each["tenantId"] for each in [*all_usage, *totals]} == {"acme"}
    assert [each["userId"] for each in omars_usage] == ["omar"]


async def test_an_admin_manages_only_the_jobs_of_the_app(tb: Tellback, app: Any, maya: User) -> None:
    await tb.jobs.drain(30)
    [foreign, *_] = await tb.jobs.list(tenant_id="globex")
    async with await client(tb, app, "admin") as admin:
        jobs = (await admin.get("/ai-admin/jobs")).json()["items"]
        assert {each["tenantId"] for each in jobs} == {"acme"}
        assert {each["userId"] for each in jobs} == {"maya", "omar"}
        mayas_jobs = (await admin.get("/ai-admin/jobs", params={"userId": "maya", "limit": 1})).json()["items"]
        assert [each["userId"] for each in mayas_jobs] == ["maya"]
        id = jobs[0]["id"]
        assert JobWire.model_validate((await admin.get(f"/ai-admin/jobs/{id}")).json()).value() == await tb.jobs.get(id)
        assert (await admin.post(f"/ai-admin/jobs/{id}/retry")).json()["status"] == "queued"
        assert (await admin.post(f"/ai-admin/jobs/{id}/cancel")).status_code == 200
        for verb in ("retry", "cancel"):
            assert (await admin.post(f"/ai-admin/jobs/{foreign.id}/{verb}")).status_code == 404
        assert (await admin.get(f"/ai-admin/jobs/{foreign.id}")).status_code == 404


async def test_an_admin_manages_only_the_bindings_of_the_app(tb: Tellback, app: Any, maya: User) -> None:
    [foreign] = await tb.bindings.list("globex")
    async with await client(tb, app, "admin") as admin:
        found = (await admin.get("/ai-admin/bindings")).json()["items"]
        assert {each["createdBy"] for each in found} == {"maya", "omar"}
        path = f"/ai-admin/bindings/{found[0]['id']}"
        assert (await admin.patch(path, json={"enabled": False})).json()["enabled"] is False
        assert (await admin.get(path)).json()["enabled"] is False
        assert (await admin.delete(path)).status_code == 204
        assert (await admin.get(path)).status_code == 404
        for other in (
            await admin.get(f"/ai-admin/bindings/{foreign.id}"),
            await admin.patch(f"/ai-admin/bindings/{foreign.id}", json={"enabled": False}),
            await admin.delete(f"/ai-admin/bindings/{foreign.id}"),
        ):
            assert other.status_code == 404
    assert (await tb.bindings.list("globex"))[0].enabled


async def test_close_stale_closes_only_conversations_of_the_app(tb: Tellback, app: Any) -> None:
    acme_conversations = [await tb.user(name, "acme").conversations.create("chat") for name in ("maya", "omar", "maya")]
    globex_conversation = await tb.user("maya", "globex").conversations.create("chat")
    closed: list[str] = []
    async with await client(tb, app, "admin") as admin:
        body: dict[str, Any] = {"olderThan": 0, "limit": 1}
        while True:
            answer = (await admin.post("/ai-admin/close-stale", json=body)).json()
            closed += answer["conversationIds"]
            if answer["nextCursor"] is None:
                break
            body["cursor"] = answer["nextCursor"]
    assert sorted(closed) == sorted(each.id for each in acme_conversations)
    still_open = await tb.user("maya", "globex").conversations.get(globex_conversation.id)
    assert still_open is not None
    assert still_open.is_open


async def test_a_replay_queues_jobs_of_the_app_in_pages(tb: Tellback, app: Any, maya: User) -> None:
    await tb.jobs.drain(30)
    before = len(await tb.jobs.list(tenant_id="globex", status="queued"))
    async with await client(tb, app, "admin") as admin:
        first = await admin.post("/ai-admin/replay", json={"limit": 1})
        assert first.status_code == 202
        assert first.json()["conversations"] == 1
        second_page = (await admin.post("/ai-admin/replay", json={"cursor": first.json()["nextCursor"]})).json()
        assert second_page["nextCursor"] is None
        assert first.json()["jobs"] + second_page["jobs"] == 2
    assert len(await tb.jobs.list(tenant_id="globex", status="queued")) == before
