"""Bindings, extractions and jobs over REST, and their permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import Tellback
from tellback.errors import ProviderRequestError
from tellback.testing import ScriptedModel, raises
from tellback.types.jobs import JobStatus
from tellback.wire.operations import MemoryOperations
from tests.support.rest import RestClient, expect_json, list_all, rest_client


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None, worker=False) as opened:
        yield opened


@pytest.fixture
async def rest(tb: Tellback) -> AsyncIterator[RestClient]:
    async with rest_client(tb, role="app") as client:
        yield client


@pytest.fixture
async def space(tb: Tellback) -> str:
    return (await tb.user("maya").memory.create_space("daily")).id


async def add_message(tb: Tellback, user: str = "maya", namespace: str = "chat") -> str:
    conversations = tb.user(user).conversations
    conversation = await conversations.create(namespace)
    await conversations.append_user_message(conversation.id, "I keep bees.")
    return conversation.id


async def test_a_binding_is_created_changed_and_deleted(rest: RestClient, space: str) -> None:
    body = {"conversationScope": {"namespace": "chat", "userId": "*"}, "memorySpaceIds": [space]}
    created = expect_json(await rest.post("/ai-memory/bindings", json=body), 201)
    assert created["conversationScope"] == body["conversationScope"]
    assert created["extractionPolicy"] == {
        "extractionVersion": "v1",
        "onConversationClosed": True,
        "windowed": False,
        "windowTurns": 0,
    }
    assert (created["memorySpaceNames"], created["createdBy"], created["enabled"]) == (["daily"], "maya", True)
    assert expect_json(await rest.post("/ai-memory/bindings", json={**body, "once": True}), 201) == created
    path = f"/ai-memory/bindings/{created['id']}"
    change = {"enabled": False, "extractionPolicy": {"windowed": True, "windowTurns": 5}}
    changed = expect_json(await rest.patch(path, json=change))
    assert (changed["enabled"], changed["extractionPolicy"]["windowTurns"]) == (False, 5)
    assert expect_json(await rest.get(path)) == changed
    assert (await rest.patch(path, json={"conversationScope": {}})).status_code == 422
    assert await list_all(rest, "/ai-memory/bindings") == [changed]
    assert (await rest.delete(path)).status_code == 204
    assert (await rest.delete(path)).status_code == 404
    assert (await rest.get(path)).status_code == 404


async def test_several_scopes_are_returned_as_a_list(rest: RestClient, space: str) -> None:
    scopes = [{"namespace": name, "userId": "maya"} for name in ("morning", "evening")]
    body = {"conversationScope": scopes, "memorySpaceIds": [space]}
    assert expect_json(await rest.post("/ai-memory/bindings", json=body), 201)["conversationScope"] == scopes


@pytest.mark.parametrize(
    "change",
    [
        {"conversationScope": []},
        {"conversationScope": {"namespace": "chat-*"}},
        {"conversationScope": {"namespace": "chat", "tenantId": "acme"}},
        {"conversationScope": "chat"},
        {"conversationScope": [{"namespace": "chat"}] * 101},
        {"memorySpaceIds": []},
        {"extractionPolicy": {"windowed": True}},
        {"extractionPolicy": {"windowed": True, "windowTurns": 2**70}},
        {"extractionPolicy": {"onConversationClosed": False}},
        {"extractionPolicy": {"extractionVersion": "../v1"}},
    ],
)
async def test_invalid_bindings_are_rejected(rest: RestClient, space: str, change: dict[str, Any]) -> None:
    body = {"conversationScope": {"namespace": "chat"}, "memorySpaceIds": [space], **change}
    assert expect_json(await rest.post("/ai-memory/bindings", json=body), 422)["code"] == "invalid-argument"


async def test_a_users_key_binds_only_its_own_conversations(tb: Tellback, rest: RestClient, space: str) -> None:
    shared = {"conversationScope": {"namespace": "chat", "userId": "*"}, "memorySpaceIds": [space]}
    for_all = expect_json(await rest.post("/ai-memory/bindings", json=shared), 201)
    async with rest_client(tb, role="user") as maya:
        for scope in (
            {"namespace": "chat"},
            {"namespace": "chat", "userId": "*"},
            {"namespace": "chat", "userId": "omar"},
            [{"namespace": "chat", "userId": "maya"}, {"namespace": "chat", "userId": "omar"}],
        ):
            body = {"conversationScope": scope, "memorySpaceIds": [space]}
            assert expect_json(await maya.post("/ai-memory/bindings", json=body), 403)["code"] == "not-allowed"
        # The app's binding in the user's name also covers others.
        path = f"/ai-memory/bindings/{for_all['id']}"
        assert (await maya.patch(path, json={"enabled": False})).status_code == 403
        assert (await maya.delete(path)).status_code == 403
        binding_body = {"conversationScope": {"namespace": "notes", "userId": "maya"}, "memorySpaceIds": [space]}
        created = expect_json(await maya.post("/ai-memory/bindings", json=binding_body), 201)
        assert (
            expect_json(await maya.patch(f"/ai-memory/bindings/{created['id']}", json={"enabled": False}))["enabled"]
            is False
        )
        assert (await maya.delete(f"/ai-memory/bindings/{created['id']}")).status_code == 204
    assert (await rest.delete(f"/ai-memory/bindings/{for_all['id']}")).status_code == 204


async def test_other_users_see_only_their_part_of_a_binding(tb: Tellback, rest: RestClient, space: str) -> None:
    scopes = [{"namespace": "chat", "userId": name} for name in ("maya", "omar", "zoe")]
    created = expect_json(
        await rest.post("/ai-memory/bindings", json={"conversationScope": scopes, "memorySpaceIds": [space]}), 201
    )
    async with rest_client(tb, "omar", role="user") as omar:
        [seen] = await list_all(omar, "/ai-memory/bindings")
        assert (seen["conversationScope"], seen["memorySpaceIds"], seen["createdBy"]) == (scopes[1], [], None)
        path = f"/ai-memory/bindings/{created['id']}"
        assert expect_json(await omar.get(path)) == seen
        assert (await omar.patch(path, json={"enabled": False})).status_code == 404
        assert (await omar.delete(path)).status_code == 404
    async with rest_client(tb, "lee", role="user") as lee:
        assert await list_all(lee, "/ai-memory/bindings") == []
        assert (await lee.get(path)).status_code == 404


async def test_only_admins_see_provider_errors_of_jobs() -> None:
    failure = ProviderRequestError("Incorrect API key sk-live-1", provider="anthropic")
    model = ScriptedModel([raises(failure)])
    async with Tellback(":memory:", model=model, embedder=None) as tb:
        space, id = await tb.user("maya").memory.create_space("daily"), await add_message(tb)
        async with rest_client(tb, role="user") as rest, rest_client(tb, role="admin") as admin:
            body = {"conversationId": id, "memorySpaceId": space.id}
            path = f"/ai-memory/jobs/{expect_json(await rest.post('/ai-memory/extractions', json=body), 202)['id']}"
            await tb.jobs.drain(timeout=30)
            expected = "ProviderRequestError: the server's log has the reason"
            assert expect_json(await rest.get(path))["error"] == expected
            assert [each["error"] for each in await list_all(rest, "/ai-memory/jobs")] == [expected]
            assert "sk-live" in expect_json(await admin.get(path.replace("ai-memory", "ai-admin")))["error"]
            assert expect_json(await rest.post(f"{path}/cancel"))["error"] == expected
            stream = await rest.get(f"{path}/events")
            assert expected in stream.text
            assert "sk-live" not in stream.text


async def test_an_unknown_prompt_version_is_a_client_error_for_admins() -> None:
    async with Tellback(":memory:", model=ScriptedModel([]), embedder=None, worker=False) as tb:
        own_space = await tb.user("maya").memory.create_space("daily")
        binding = await tb.user("maya").memory.create_binding({"namespace": "chat"}, [own_space.id])
        await add_message(tb)
        async with rest_client(tb, role="admin") as admin:
            change = {"extractionPolicy": {"extractionVersion": "v99"}}
            answer = await admin.patch(f"/ai-admin/bindings/{binding.id}", json=change)
            assert (answer.status_code, "v99" in answer.text) == (422, True), answer.text
            response = await admin.post("/ai-admin/replay", json={"extractionVersion": "v99"})
            assert (response.status_code, "v99" in response.text) == (422, True), response.text
        found = await tb.bindings.get(binding.id)
        assert found is not None
        assert found.extraction_policy.extraction_version == "v1"


async def test_an_extraction_is_queued_and_its_job_can_be_followed(tb: Tellback, rest: RestClient, space: str) -> None:
    id = await add_message(tb)
    unbound = expect_json(await rest.post("/ai-memory/extractions", json={"conversationId": id}), 404)
    assert unbound["data"]["kind"] == "binding"
    run = expect_json(
        await rest.post("/ai-memory/extractions", json={"conversationId": id, "memorySpaceId": space}), 202
    )
    [job] = run["jobs"]
    assert (run["id"], run["status"], job["kind"], job["conversationId"]) == (job["id"], "queued", "extract", id)
    path = f"/ai-memory/jobs/{job['id']}"
    assert expect_json(await rest.get(path)) == job
    assert expect_json(await rest.post(f"{path}/cancel"))["status"] == "cancelled"
    assert expect_json(await rest.post(f"{path}/retry"))["status"] == "queued"
    for _ in range(3):
        other = await add_message(tb)
        expect_json(
            await rest.post("/ai-memory/extractions", json={"conversationId": other, "memorySpaceId": space}), 202
        )
    assert len(await list_all(rest, "/ai-memory/jobs", limit=1)) == 4
    assert [each["id"] for each in await list_all(rest, "/ai-memory/jobs", conversationId=id)] == [job["id"]]
    assert await list_all(rest, "/ai-memory/jobs", status="done") == []
    assert (await rest.get("/ai-memory/jobs", params={"status": "gone"})).status_code == 422
    assert (await rest.get("/ai-memory/jobs", params={"conversationId": "\x00"})).status_code == 422
    assert (await rest.get("/ai-memory/jobs", params={"cursor": "AA"})).status_code == 422
    for unknown in ("job_x", "%00"):
        assert (await rest.get(f"/ai-memory/jobs/{unknown}")).status_code == 404


async def test_users_cannot_see_or_change_other_users_jobs(tb: Tellback, rest: RestClient, space: str) -> None:
    run = await tb.user("maya").memory.run_extraction_for_conversation(await add_message(tb), space_id=space)
    for user, tenant, app in (("omar", "default", "default"), ("maya", "x", "default"), ("maya", "default", "x")):
        async with rest_client(tb, user, role="admin", tenant=tenant, app=app) as other:
            assert await list_all(other, "/ai-memory/jobs") == []
            assert (await other.get(f"/ai-memory/jobs/{run.id}")).status_code == 404
            for verb in ("retry", "cancel"):
                assert (await other.post(f"/ai-memory/jobs/{run.id}/{verb}")).status_code == 404
    [job] = await tb.jobs.list()
    assert job.status is JobStatus.QUEUED


async def test_waiting_reports_whether_extraction_is_done(tb: Tellback, rest: RestClient, space: str) -> None:
    assert expect_json(await rest.post("/ai-memory/extractions/wait", json={})) == {"done": True}
    body = {"conversationId": await add_message(tb), "memorySpaceId": space}
    expect_json(await rest.post("/ai-memory/extractions", json=body), 202)
    assert expect_json(await rest.post("/ai-memory/extractions/wait", json={"timeout": 0.01})) == {"done": False}
    assert (await rest.post("/ai-memory/extractions/wait", json={"timeout": 31})).status_code == 422


async def test_waiting_without_a_timeout_ends(
    tb: Tellback, rest: RestClient, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"conversationId": await add_message(tb), "memorySpaceId": space}
    expect_json(await rest.post("/ai-memory/extractions", json=body), 202)
    monkeypatch.setitem(MemoryOperations.__dict__["wait_for_extraction"].own_defaults, "timeout", 0.05)
    assert expect_json(await rest.post("/ai-memory/extractions/wait", json={})) == {"done": False}


async def test_an_unknown_prompt_version_is_a_client_error() -> None:
    async with Tellback(":memory:", embedder=None, worker=False, model="claude-sonnet-5") as tb:
        space = await tb.user("maya").memory.create_space()
        id = await add_message(tb)
        async with rest_client(tb) as rest:
            policy = {"extractionPolicy": {"extractionVersion": "v9"}}
            body = {"conversationScope": {"namespace": "chat"}, "memorySpaceIds": [space.id]}
            for answer in (
                await rest.post("/ai-memory/bindings", json={**body, **policy}),
                await rest.post("/ai-memory/extractions", json={"conversationId": id, "extractionVersion": "v9"}),
            ):
                assert "v9" in expect_json(answer, 422)["detail"]
            created = expect_json(await rest.post("/ai-memory/bindings", json=body), 201)
            assert (await rest.patch(f"/ai-memory/bindings/{created['id']}", json=policy)).status_code == 422
