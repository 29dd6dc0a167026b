"""`Idempotency-Key`: a repeated request is processed once and gets the same response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.errors import StoreUnavailableError
from tellback.server import ServerSettings, create_app
from tellback.stores import StoredResponse
from tellback.testing import FunctionModel, ScriptedModel, calls, says
from tests.support.http_server import app_client

CHAT = {"namespace": "chat"}
KEY = {"Idempotency-Key": "k-1"}


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False) as opened:
        yield opened


@pytest.fixture
def app(tb: Tellback) -> Any:
    return create_app(tb, ServerSettings(), opens=False)


@pytest.fixture
async def maya(tb: Tellback, app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    created = await tb.keys.create("user", user_id="maya")
    async with app_client(app, created.secret) as client:
        yield client


async def count_conversations(tb: Tellback, user: str = "maya") -> int:
    return len(await tb.user(user).conversations.list())


async def test_a_repeated_request_is_processed_once(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    first = await maya.post("/ai-conversations", json=CHAT, headers=KEY)
    repeated = await maya.post("/ai-conversations", json=CHAT, headers=KEY)
    assert (repeated.status_code, repeated.content) == (first.status_code, first.content)
    assert repeated.headers["content-type"] == first.headers["content-type"]
    assert "idempotency-replayed" not in first.headers
    assert repeated.headers["idempotency-replayed"] == "true"
    assert await count_conversations(tb) == 1


async def test_requests_without_a_key_or_with_different_keys_are_independent(
    tb: Tellback, maya: httpx2.AsyncClient
) -> None:
    for headers in (None, None, KEY, {"Idempotency-Key": "k-2"}):
        assert (await maya.post("/ai-conversations", json=CHAT, headers=headers)).status_code == 201
    assert await count_conversations(tb) == 4


@pytest.mark.parametrize("change", ["body", "query", "path"])
async def test_a_key_cannot_be_reused_for_another_request(tb: Tellback, maya: httpx2.AsyncClient, change: str) -> None:
    await maya.post("/ai-conversations", json=CHAT, headers=KEY)
    path = {"query": "/ai-conversations?x=1", "path": "/ai-memory/spaces"}.get(change, "/ai-conversations")
    body = {"namespace": "other"} if change == "body" else CHAT
    answer = await maya.post(path, json=body, headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency-conflict")
    assert answer.json()["data"]["key"] == "k-1"
    assert await count_conversations(tb) == 1


async def test_a_running_request_is_not_started_again(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    answers = await asyncio.gather(*(maya.post("/ai-conversations", json=CHAT, headers=KEY) for _ in range(8)))
    assert await count_conversations(tb) == 1
    assert {each.status_code for each in answers} <= {201, 409}
    assert {each.json()["code"] for each in answers if each.status_code == 409} <= {"request-in-progress"}
    assert len({each.json()["id"] for each in answers if each.status_code == 201}) == 1


async def test_repeating_a_running_request_is_a_conflict(
    tb: Tellback, maya: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, started, may_continue = tb.store.conversations.create, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any) -> Any:
        started.set()
        await may_continue.wait()
        return await create(*args)

    monkeypatch.setattr(tb.store.conversations, "create", slowly)
    first = asyncio.create_task(maya.post("/ai-conversations", json=CHAT, headers=KEY))
    await started.wait()
    second = await maya.post("/ai-conversations", json=CHAT, headers=KEY)
    other = await maya.post("/ai-conversations", json={"namespace": "other"}, headers=KEY)
    may_continue.set()
    assert (await first).status_code == 201
    assert (second.status_code, second.json()["code"]) == (409, "request-in-progress")
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-conflict")
    assert (await maya.post("/ai-conversations", json=CHAT, headers=KEY)).content == (await first).content


async def test_error_responses_are_not_stored(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    wrong = await maya.post("/ai-conversations", json={"namespace": ""}, headers=KEY)
    assert wrong.status_code == 422
    assert (await maya.post("/ai-conversations", json={"nonsense": 1}, headers=KEY)).status_code == 422
    assert (await maya.post("/ai-conversations/conv_none/close", headers=KEY)).status_code == 404
    assert (await maya.post("/ai-conversations", json=CHAT, headers=KEY)).status_code == 201
    assert await count_conversations(tb) == 1


async def test_server_errors_are_not_stored(
    tb: Tellback, maya: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*args: Any) -> Any:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(tb.store.conversations, "create", fails)
        assert (await maya.post("/ai-conversations", json=CHAT, headers=KEY)).status_code == 503
    assert (await maya.post("/ai-conversations", json=CHAT, headers=KEY)).status_code == 201


async def test_a_write_with_unknown_outcome_is_not_repeated(
    tb: Tellback, maya: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = tb.store.conversations.create

    async def create_then_fail(*args: Any) -> Any:
        await create(*args)
        raise StoreUnavailableError("away", in_doubt=True)

    with monkeypatch.context() as patched:
        patched.setattr(tb.store.conversations, "create", create_then_fail)
        assert (await maya.post("/ai-conversations", json=CHAT, headers=KEY)).status_code == 503
    repeated = await maya.post("/ai-conversations", json=CHAT, headers=KEY)
    assert (repeated.status_code, repeated.json()["code"]) == (409, "request-in-progress")
    assert await count_conversations(tb) == 1


@pytest.mark.parametrize("is_turn", [False, True])
async def test_a_cancelled_request_is_repeated_only_if_that_is_harmless(
    is_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = asyncio.Event()

    async def hangs(request: Any) -> str:
        started.set()
        await asyncio.Event().wait()
        return ""

    async with Tellback(":memory:", model=FunctionModel(hangs), worker=False) as tb:
        conversation = await tb.user("local").conversations.create("chat")
        create = tb.store.conversations.create

        async def creates(*args: Any) -> Any:
            await create(*args)
            return await hangs(args)

        monkeypatch.setattr(tb.store.conversations, "create", creates)
        path, body = "/ai-conversations", dict(CHAT)
        if is_turn:
            path, body = f"/ai-conversations/{conversation.id}/run-turn", {"userText": "Hi"}
        async with app_client(create_app(tb, ServerSettings(open=True), opens=False)) as client:
            for _ in range(2):
                started.clear()
                asking = asyncio.create_task(client.post(path, json=body, headers=KEY))
                waiting = asyncio.create_task(started.wait())
                await asyncio.wait({asking, waiting}, return_when=asyncio.FIRST_COMPLETED)
                asking.cancel()  # in process, the client's task is also the server's
                [answer] = await asyncio.gather(asking, return_exceptions=True)
                waiting.cancel()
        if is_turn:
            assert isinstance(answer, asyncio.CancelledError), "the model was called again"
            assert len(await tb.user("local").conversations.messages(conversation.id)) == 1
        else:
            assert isinstance(answer, httpx2.Response)
            assert answer.json()["code"] == "request-in-progress"
            assert len(await tb.user("local").conversations.list()) == 2


async def test_users_may_use_the_same_key(tb: Tellback, app: Any) -> None:
    created = await tb.keys.create("app")
    ids = set()
    for user in ("maya", "omar"):
        async with app_client(app, created.secret, user) as client:
            ids.add((await client.post("/ai-conversations", json=CHAT, headers=KEY)).json()["id"])
    assert len(ids) == 2
    assert (await count_conversations(tb), await count_conversations(tb, "omar")) == (1, 1)


async def test_an_admins_stored_response_is_not_returned_to_others(tb: Tellback, app: Any) -> None:
    for role in ("admin", "app", "user"):
        created = await tb.keys.create(role, user_id="maya" if role == "user" else None)
        async with app_client(app, created.secret, "maya") as client:
            answer = await client.post("/ai-admin/close-stale", json={"olderThan": 1}, headers=KEY)
        assert answer.status_code == (200 if role == "admin" else 403)
    assert (await tb.user("maya").admin.export_user_data())["idempotent_responses"] == []


async def test_admin_operations_on_all_users_are_not_stored(tb: Tellback, app: Any) -> None:
    created = await tb.keys.create("admin", tenant_id="acme")
    for _ in range(2):
        async with app_client(app, created.secret) as client:
            answer = await client.post("/ai-admin/close-stale", json={"olderThan": 1}, headers=KEY)
        assert answer.status_code == 200
        assert "idempotency-replayed" not in answer.headers


async def test_a_response_without_body_is_replayed(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    space = (await maya.post("/ai-memory/spaces", json={"name": "notes"})).json()
    answers = [await maya.delete(f"/ai-memory/spaces/{space['id']}", headers=KEY) for _ in range(2)]
    assert [each.status_code for each in answers] == [204, 204]
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert answers[1].content == b""


async def test_routes_that_handle_the_key_themselves_are_not_wrapped(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    conversation = (await maya.post("/ai-conversations", json=CHAT)).json()["id"]
    path = f"/ai-conversations/{conversation}/user-messages"
    answers = [await maya.post(path, json={"content": "Hi"}, headers=KEY) for _ in range(2)]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert "idempotency-replayed" not in answers[1].headers
    assert answers[0].json()["idempotencyKey"] == "k-1"


async def test_erasing_a_user_deletes_the_stored_responses(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    first = await maya.post("/ai-conversations", json=CHAT, headers=KEY)
    await tb.user("maya").admin.delete_user_data(confirm=True)
    created = await tb.keys.create("user", user_id="maya")
    maya.headers["Authorization"] = f"Bearer {created.secret}"
    repeated = await maya.post("/ai-conversations", json=CHAT, headers=KEY)
    assert repeated.json()["id"] != first.json()["id"]


@pytest.mark.parametrize("key", ["", " ", "x" * 501])
async def test_an_invalid_key_is_rejected(tb: Tellback, maya: httpx2.AsyncClient, key: str) -> None:
    answer = await maya.post("/ai-conversations", json=CHAT, headers={"Idempotency-Key": key})
    assert answer.status_code == 422
    assert await count_conversations(tb) == 0


def test_the_header_is_documented_for_operations_that_accept_it() -> None:
    paths = create_app(Tellback(":memory:"), ServerSettings()).openapi()["paths"]
    for path, methods in paths.items():
        for method, described in methods.items():
            header_names = [
                each.get("name") or each["$ref"].rpartition("/")[2] for each in described.get("parameters", ())
            ]
            assert header_names.count("Idempotency-Key") <= 1, path
            if method == "get":
                assert "Idempotency-Key" not in header_names, path
    assert "Idempotency-Key" in str(paths["/ai-conversations"]["post"]["parameters"])
    assert "Idempotency-Key" not in str(paths["/ai-admin/keys"]["post"].get("parameters"))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"])), max_size=12))
def test_concurrent_requests_create_one_conversation_per_key(requests: list[tuple[str, str]]) -> None:
    """Concurrent requests create one conversation per key, in the namespace of the first request."""

    async def run() -> None:
        async with Tellback(":memory:", worker=False, embedder=None) as tb:
            app = create_app(tb, ServerSettings(open=True), opens=False)
            first: dict[str, str] = {}
            async with app_client(app) as client:
                for key, namespace in requests:
                    answer = await client.post(
                        "/ai-conversations", json={"namespace": namespace}, headers={"Idempotency-Key": key}
                    )
                    expected_namespace = first.setdefault(key, namespace)
                    assert answer.status_code == (201 if expected_namespace == namespace else 422)
            created = [each.namespace for each in await tb.user("local").conversations.list()]
            assert sorted(created) == sorted(first.values())

    asyncio.run(run())


def test_a_stored_response_hides_its_body_in_its_repr() -> None:
    assert "secret" not in repr(StoredResponse(200, "application/json", b"secret"))


async def test_erasures_of_different_users_with_one_key_are_both_processed(tb: Tellback, app: Any) -> None:
    created = await tb.keys.create("admin")
    for name in ("alice", "bob"):
        await tb.user(name).conversations.create("chat")
        async with app_client(app, created.secret, name) as admin:
            answer = await admin.post("/ai-admin/delete", json={"confirm": True}, headers=KEY)
        assert answer.status_code == 200
        assert await count_conversations(tb, name) == 0


async def test_an_admins_stored_responses_about_an_erased_user_are_deleted(tb: Tellback, app: Any) -> None:
    created, user_key = await tb.keys.create("admin"), await tb.keys.create("user", user_id="maya", name="zebra phone")
    async with app_client(app, created.secret) as admin:
        path = f"/ai-admin/keys/{user_key.key.id}"
        assert (await admin.delete(path, headers=KEY)).status_code == 200
        await tb.user("maya").admin.delete_user_data(confirm=True)
        assert (await admin.delete(path, headers=KEY)).status_code == 404


async def test_the_key_of_a_turn_is_scoped_to_its_conversation(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    tb._runtime.model = ScriptedModel([says("One."), says("Two.")])
    for text in ("One.", "Two."):
        conversation = await tb.user("maya").conversations.create("chat")
        answer = await maya.post(f"/ai-conversations/{conversation.id}/run-turn", json={"userText": "Hi"}, headers=KEY)
        assert answer.json()["text"] == text


async def test_a_turn_with_pending_tools_is_not_replayed(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    tb._runtime.model = ScriptedModel([calls("look"), says("Done."), says("Done before.")])
    conversation = await tb.user("maya").conversations.create("chat")
    path, body = f"/ai-conversations/{conversation.id}/run-turn", {"tools": [{"name": "look"}]}
    first = (await maya.post(path, json={**body, "userText": "Look!"}, headers=KEY)).json()
    results = [{"toolUseId": call["id"], "content": "seen"} for call in first["pending"]]
    assert (await maya.post(path, json={**body, "toolResults": results})).json()["text"] == "Done."
    retried = (await maya.post(path, json={**body, "userText": "Look!"}, headers=KEY)).json()
    assert (retried["text"], retried["pending"]) == ("Done before.", [])


async def test_an_appended_turn_is_stored_once(tb: Tellback, maya: httpx2.AsyncClient) -> None:
    conversation = await tb.user("maya").conversations.create("chat")
    body = {"userContent": "Hi", "assistant": {"content": "Hello!"}}
    for _ in range(2):
        assert (
            await maya.post(f"/ai-conversations/{conversation.id}/turns", json=body, headers=KEY)
        ).status_code == 201
    assert [each.text for each in await tb.user("maya").conversations.messages(conversation.id)] == ["Hi", "Hello!"]
