"""Conversations over REST: create, append, read in pages, close."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import Tellback
from tests.support.rest import RestClient, expect_json, list_all, rest_client


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None, worker=False) as opened:
        yield opened


@pytest.fixture
async def rest(tb: Tellback) -> AsyncIterator[RestClient]:
    async with rest_client(tb) as client:
        yield client


@pytest.fixture
async def conversation_path(rest: RestClient) -> str:
    created = expect_json(await rest.post("/ai-conversations", json={"namespace": "support-chat"}), 201)
    return f"/ai-conversations/{created['id']}"


async def test_a_conversation_is_created_listed_and_closed(rest: RestClient) -> None:
    body = {"namespace": "support-chat", "title": "Refund", "metadata": {"source": "web"}, "sessionId": "s1"}
    created = expect_json(await rest.post("/ai-conversations", json=body), 201)
    assert {name: created[name] for name in body} == body
    assert (created["userId"], created["status"]) == ("maya", "open")
    other = expect_json(await rest.post("/ai-conversations", json={"namespace": "other"}), 201)
    assert await list_all(rest, "/ai-conversations", limit=1) == [other, created]
    assert await list_all(rest, "/ai-conversations", namespace="support-chat") == [created]
    path = f"/ai-conversations/{created['id']}"
    closed = expect_json(await rest.post(f"{path}/close"))
    assert expect_json(await rest.post(f"{path}/close")) == closed == expect_json(await rest.get(path))
    assert await list_all(rest, "/ai-conversations", status="closed") == [closed]
    assert (await rest.get("/ai-conversations", params={"status": "gone"})).status_code == 422
    problem = expect_json(await rest.post(f"{path}/user-messages", json={"content": "Hi"}), 409)
    assert problem["code"] == "conversation-closed"


async def test_messages_of_each_role_are_appended_with_all_fields(rest: RestClient, conversation_path: str) -> None:
    user_message = expect_json(
        await rest.post(f"{conversation_path}/user-messages", json={"content": "Where's my refund?", "traceId": "t1"}),
        201,
    )
    usage = {"inputTokens": 12, "outputTokens": 3, "latencyMs": 800}
    call = {"type": "tool_use", "id": "tu_1", "name": "lookup", "arguments": {"order": 7}}
    turn = {"content": [call], "stopReason": "tool_use", "model": "claude-sonnet-5", "usage": usage}
    assistant_turn = expect_json(await rest.post(f"{conversation_path}/assistant-turns", json=turn), 201)
    result = {"toolUseId": "tu_1", "toolName": "lookup", "content": "shipped"}
    tool_result = expect_json(await rest.post(f"{conversation_path}/tool-results", json=result), 201)
    note = expect_json(await rest.post(f"{conversation_path}/system-messages", json={"content": "Free plan."}), 201)
    assert [each["seq"] for each in (user_message, assistant_turn, tool_result, note)] == [1, 2, 3, 4]
    assert {each["turnId"] for each in (user_message, assistant_turn, tool_result, note)} == {user_message["turnId"]}
    assert user_message["traceId"] == "t1"
    assert assistant_turn["content"] == [call]
    assert {name: assistant_turn["usage"][name] for name in usage} == usage
    [block] = tool_result["content"]
    assert (block["toolUseId"], block["toolName"], block["isError"]) == ("tu_1", "lookup", False)
    assert note["visibility"] == "internal"
    assert await list_all(rest, f"{conversation_path}/messages") == [user_message, assistant_turn, tool_result]
    assert await list_all(rest, f"{conversation_path}/messages", includeInternal=True) == [
        user_message,
        assistant_turn,
        tool_result,
        note,
    ]
    assert await list_all(rest, f"{conversation_path}/raw-turns") == [user_message, assistant_turn, tool_result, note]


async def test_messages_are_read_backwards_and_forwards(rest: RestClient, conversation_path: str) -> None:
    messages = [{"role": "user", "content": str(n)} for n in range(1, 8)]
    expect_json(await rest.post(f"{conversation_path}/messages", json={"messages": messages}), 201)

    async def seqs(**query: Any) -> list[list[int]]:
        pages, cursor = [], None
        while True:
            params = {"limit": 3, **query, **({} if cursor is None else {"cursor": cursor})}
            page = expect_json(await rest.get(f"{conversation_path}/messages", params=params))
            pages.append([each["seq"] for each in page["items"]])
            cursor = page["nextCursor"]
            if cursor is None:
                return pages

    assert await seqs() == [[5, 6, 7], [2, 3, 4], [1]]
    assert await seqs(before=5) == [[2, 3, 4], [1]]
    assert await seqs(after=2) == [[3, 4, 5], [6, 7]]
    assert await seqs(after=0, limit=7) == [[1, 2, 3, 4, 5, 6, 7]]
    assert await seqs(after=7) == [[]]
    for query in ({"before": -1}, {"after": 2**70}, {"limit": 0}, {"cursor": "eA"}, {"cursor": "é"}):
        assert (await rest.get(f"{conversation_path}/messages", params=query)).status_code == 422


async def test_a_retry_with_a_key_stores_the_users_message_once(rest: RestClient, conversation_path: str) -> None:
    key = {"Idempotency-Key": "k1"}
    first = expect_json(await rest.post(f"{conversation_path}/user-messages", json={"content": "Hi"}, headers=key), 201)
    repeated = expect_json(
        await rest.post(f"{conversation_path}/user-messages", json={"content": "Hi", "idempotencyKey": "k1"}), 201
    )
    assert repeated["id"] == first["id"]
    clash = await rest.post(
        f"{conversation_path}/user-messages", json={"content": "Hi", "idempotencyKey": "k2"}, headers=key
    )
    assert clash.status_code == 422
    body = {"userContent": "Bye", "assistant": {"content": "See you."}, "idempotencyKey": "k3"}
    one, two = [expect_json(await rest.post(f"{conversation_path}/turns", json=body), 201) for _ in range(2)]
    assert one["userMessage"] == two["userMessage"]
    assert one["assistantMessage"]["id"] != two["assistantMessage"]["id"]
    assert one["turnId"] == two["turnId"] == one["userMessage"]["turnId"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("user-messages", {}),
        ("user-messages", {"content": []}),
        ("user-messages", {"content": [{"type": "hologram"}]}),
        ("user-messages", {"content": {"type": "text", "text": "x"}}),
        ("user-messages", {"content": "x", "visibility": "public"}),
        ("user-messages", {"content": "x", "createdAt": "today"}),
        ("user-messages", {"content": "x", "userId": "omar"}),
        ("user-messages", {"content": "x", "idempotencyKey": "x" * 501}),
        ("assistant-turns", {"content": "x", "usage": {"inputTokens": -1}}),
        ("assistant-turns", {"content": "x", "usage": {"costUsd": "dear"}}),
        ("tool-results", {"content": "x"}),
        ("tool-results", {"content": "x", "toolUseId": ""}),
        ("turns", {"userContent": "x"}),
        ("turns", {"userContent": "x", "assistant": "y"}),
    ],
)
async def test_invalid_appended_messages_are_rejected(
    rest: RestClient, conversation_path: str, path: str, body: dict[str, Any]
) -> None:
    assert expect_json(await rest.post(f"{conversation_path}/{path}", json=body), 422)["code"] == "invalid-argument"
    assert await list_all(rest, f"{conversation_path}/raw-turns") == []
