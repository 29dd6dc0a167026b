"""Operations on conversations besides messages, over REST."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from tellback import Tellback, Tool
from tellback.testing import ScriptedModel, calls
from tests.support.rest import RestClient, expect_json, list_all, rest_client


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None, worker=False) as opened:
        yield opened


@pytest.fixture
async def rest(tb: Tellback) -> AsyncIterator[RestClient]:
    async with rest_client(tb) as client:
        yield client


async def test_the_open_conversation_is_found_or_opened(rest: RestClient) -> None:
    query = {"namespace": "daily", "sessionId": "s1"}
    missing = expect_json(await rest.get("/ai-conversations/open", params=query), 404)
    assert missing["code"] == "not-found"
    body = {**query, "title": "Today", "metadata": {"a": 1}, "closeAfter": 60}
    created = expect_json(await rest.post("/ai-conversations/find-or-create", json=body))
    assert (created["title"], created["metadata"], created["closeAfter"]) == ("Today", {"a": 1}, 60)
    assert expect_json(await rest.post("/ai-conversations/find-or-create", json=query)) == created
    assert expect_json(await rest.get("/ai-conversations/open", params=query)) == created
    assert (await rest.get("/ai-conversations/open", params={"namespace": "other"})).status_code == 404
    assert (await rest.get("/ai-conversations/open")).status_code == 422
    expect_json(await rest.post(f"/ai-conversations/{created['id']}/close"))
    assert (await rest.get("/ai-conversations/open", params=query)).status_code == 404
    assert expect_json(await rest.post("/ai-conversations/find-or-create", json=query))["id"] != created["id"]


async def test_an_imported_chat_is_stored_in_one_request(rest: RestClient) -> None:
    conversation = expect_json(await rest.post("/ai-conversations", json={"namespace": "chat"}), 201)
    path = f"/ai-conversations/{conversation['id']}/messages"
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi", "createdAt": "2020-01-01T00:00:00Z", "visibility": None},
        {"role": "assistant", "content": [{"type": "text", "text": "Hello!"}], "usage": {"inputTokens": 3}},
        {"role": "user", "content": "Bye", "idempotencyKey": "k1"},
    ]
    stored = expect_json(await rest.post(path, json={"messages": messages}), 201)["items"]
    assert [(each["seq"], each["visibility"]) for each in stored] == [
        (1, "internal"),
        *((n, "user") for n in (2, 3, 4)),
    ]
    assert stored[1]["turnId"] == stored[2]["turnId"] != stored[3]["turnId"]
    assert stored[1]["createdAt"] == "2020-01-01T00:00:00Z"
    assert stored[2]["usage"]["inputTokens"] == 3
    assert expect_json(await rest.get(f"/ai-conversations/messages/{stored[3]['id']}")) == stored[3]
    assert await list_all(rest, path, includeInternal=True, limit=200) == stored
    for bad_messages in (
        [],
        [{"role": "user", "content": "Hi"}] * 1_001,
        [messages[1], {"role": "judge", "content": "x"}],
    ):
        assert (await rest.post(path, json={"messages": bad_messages})).status_code == 422
    unknown = await rest.post("/ai-conversations/conv_x/messages", json={"messages": messages})
    assert unknown.status_code == 404
    assert len(await list_all(rest, path, includeInternal=True)) == 4
    expect_json(await rest.post(f"/ai-conversations/{conversation['id']}/close"))
    assert expect_json(await rest.post(path, json={"messages": messages}), 409)["code"] == "conversation-closed"


async def test_close_stale_only_closes_the_users_conversations(tb: Tellback, rest: RestClient) -> None:
    conversation = await tb.user("maya").conversations.create("chat")
    other = await tb.user("omar").conversations.create("chat")
    assert expect_json(await rest.post("/ai-conversations/close-stale", json={"olderThan": 3600}))["items"] == []
    closed = expect_json(await rest.post("/ai-conversations/close-stale", json={"olderThan": 0}))["items"]
    assert [(each["id"], each["status"]) for each in closed] == [(conversation.id, "closed")]
    stored = await tb.user("omar").conversations.get(other.id)
    assert stored is not None
    assert stored.is_open
    for age in (-1, 1e300, "PT1H", None):
        assert (await rest.post("/ai-conversations/close-stale", json={"olderThan": age})).status_code == 422


async def test_pending_calls_are_listed() -> None:
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    model = ScriptedModel([calls("pay", amount=3)])
    async with Tellback(":memory:", embedder=None, worker=False, model=model) as tb, rest_client(tb) as rest:
        conversations = tb.user("maya").conversations
        conversation = await conversations.create("chat")
        path = f"/ai-conversations/{conversation.id}/pending"
        assert expect_json(await rest.get(path))["items"] == []
        tool = Tool.from_fn(pay, requires_approval=True)
        outcome = await conversations.run_turn(conversation.id, user_text="Pay 3", tools=[tool])
        [call] = expect_json(await rest.get(path))["items"]
        assert (call["id"], call["name"], call["input"]) == (outcome.pending[0].id, "pay", {"amount": 3})
        assert (await rest.get("/ai-conversations/conv_x/pending")).status_code == 404


async def test_a_summary_uses_only_allowed_models(tb: Tellback, rest: RestClient) -> None:
    conversations = tb.user("maya").conversations
    conversation = await conversations.create("chat", close_after=timedelta(hours=1))
    await conversations.append_turn(conversation.id, "I keep bees.", {"content": "How many?"})
    path = f"/ai-conversations/{conversation.id}/rolling-summary"
    assert expect_json(await rest.post(path, json={"model": "gpt-9"}), 403)["code"] == "not-allowed"
    assert expect_json(await rest.post(path))["outcome"] == "refreshed"
    assert expect_json(await rest.post(path, json={}))["outcome"] == "unchanged"
