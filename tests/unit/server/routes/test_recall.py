"""Recall and the working context over REST return the same as the handles."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import Tellback
from tellback.types.memory import RecallResult, WorkingContext
from tellback.wire.values import RecallResultWire, WorkingContextWire
from tests.support.rest import RestClient, expect_json, rest_client

NOW = "2026-06-01T12:00:00Z"


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None, worker=False) as opened:
        yield opened


@pytest.fixture
async def rest(tb: Tellback) -> AsyncIterator[RestClient]:
    async with rest_client(tb) as client:
        yield client


@pytest.fixture
async def space(tb: Tellback) -> str:
    memory = tb.user("maya").memory
    created = await memory.create_space("goals")
    ana = await memory.create_entity(created.id, "PERSON", "Ana")
    await memory.add_atom(created.id, "Ana likes tea.", ("taste", "PREFERENCE"), 5, None, NOW, entity_ids=[ana.id])
    boat = await memory.add_atom(created.id, "Ana has a boat.", valid_from="2026-01-01T00:00:00Z", entity_ids=[ana.id])
    await memory.supersede_atom(boat.id, "Ana sold the boat.", valid_from="2026-03-01T00:00:00Z")
    return created.id


def parse_result(answer: Any) -> RecallResult:
    found: RecallResult = RecallResultWire.model_validate(expect_json(answer)).value()
    return found


async def test_recall_returns_the_handles_result(tb: Tellback, rest: RestClient, space: str) -> None:
    memory, path = tb.user("maya").memory, f"/ai-memory/spaces/{space}"
    by_topic = await memory.recall_by_topic(space, "What does Ana like?", 2, now=NOW)
    body: dict[str, Any] = {"query": "What does Ana like?", "limit": 2, "now": NOW}
    assert parse_result(await rest.post(f"{path}/recall-by-topic", json=body)).hits == by_topic.hits
    by_entity = await memory.recall_by_entity(space, "Ana", now=NOW)
    body = {"entityIdOrName": "Ana", "now": NOW}
    assert parse_result(await rest.post(f"{path}/recall-by-entity", json=body)).hits == by_entity.hits
    timeline = await memory.recall_timeline(space, "Ana", from_="2026-01-15T00:00:00Z", to=NOW, now=NOW)
    body = {"entityIdOrName": "Ana", "from": "2026-01-15T00:00:00Z", "to": NOW, "now": NOW}
    assert parse_result(await rest.post(f"{path}/recall-timeline", json=body)).hits == timeline.hits
    assert [hit.atom.text for hit in timeline] == ["Ana has a boat.", "Ana sold the boat.", "Ana likes tea."]


async def test_options_filter_and_limit_recall(rest: RestClient, space: str) -> None:
    path = f"/ai-memory/spaces/{space}"
    cases: list[tuple[str, dict[str, Any], list[str]]] = [
        ("recall-by-topic", {"query": "Ana", "categoryNames": ["taste"]}, ["Ana likes tea."]),
        ("recall-by-topic", {"query": "Ana", "minImportance": 4}, ["Ana likes tea."]),
        ("recall-by-topic", {"query": "boat", "validAt": "2026-02-01T00:00:00Z"}, ["Ana has a boat."]),
        ("recall-by-topic", {"query": "Ana", "limit": 0}, []),
        ("recall-by-topic", {"query": "Ana", "minScore": 1}, []),
        ("recall-by-entity", {"entityIdOrName": "Ana", "limit": 1}, ["Ana likes tea."]),
        ("recall-timeline", {"includeSuperseded": False, "to": "2026-04-01T00:00:00Z"}, ["Ana sold the boat."]),
        ("recall-timeline", {"query": "tea", "limit": 1}, ["Ana likes tea."]),
    ]
    for method, body, texts in cases:
        found = parse_result(await rest.post(f"{path}/{method}", json={"now": NOW, **body}))
        assert [atom.text for atom in found.atoms] == texts, (method, body)


async def test_a_hit_explains_its_score(rest: RestClient, space: str) -> None:
    found = expect_json(
        await rest.post(f"/ai-memory/spaces/{space}/recall-by-topic", json={"query": "tea", "now": NOW})
    )
    assert found["mode"] == "BY_TOPIC"
    hit = found["hits"][0]
    assert {"atom", "score", "decayWeight", "entityMatchBonus", "context", "parts"} == set(hit)
    assert hit["parts"]["same words"] > 0


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("recall-by-topic", {}),
        ("recall-by-topic", {"query": " "}),
        ("recall-by-topic", {"query": "x", "limit": -1}),
        ("recall-by-topic", {"query": "x", "limit": 201}),
        ("recall-by-topic", {"query": "x", "limit": 2**70}),
        ("recall-by-topic", {"query": "x", "neighbours": 2**70}),
        ("recall-by-topic", {"query": "x", "minScore": 2}),
        ("recall-by-topic", {"query": "x", "minImportance": 9}),
        ("recall-by-topic", {"query": "x", "validAt": "now"}),
        ("recall-by-topic", {"query": "x", "spaceId": "ms_1"}),
        ("recall-by-entity", {"entityIdOrName": ""}),
        ("recall-by-entity", {"entityIdOrName": "x" * 501}),
        ("recall-timeline", {"from": NOW, "to": "2026-01-01T00:00:00Z"}),
        ("recall-timeline", {"categoryNames": ["x"] * 101}),
    ],
)
async def test_invalid_recall_requests_are_rejected(
    rest: RestClient, space: str, method: str, body: dict[str, Any]
) -> None:
    assert (
        expect_json(await rest.post(f"/ai-memory/spaces/{space}/{method}", json=body), 422)["code"]
        == "invalid-argument"
    )


async def test_the_working_context_equals_the_handles_result(tb: Tellback, rest: RestClient, space: str) -> None:
    maya = tb.user("maya")
    conversation = await maya.conversations.create("chat")
    await maya.conversations.append_turn(conversation.id, "Hello!", {"content": "Hi, what can I do?"})
    built = await maya.working_context.build(conversation.id, space, "tea", always_on_category_names=["taste"], now=NOW)
    body = {
        "conversationId": conversation.id,
        "memorySpaceId": space,
        "recallQuery": "tea",
        "alwaysOnCategoryNames": ["taste"],
        "now": NOW,
        "tokenBudget": None,
    }
    answer = expect_json(await rest.post("/ai-working-context", json=body))
    found: WorkingContext = WorkingContextWire.model_validate(answer).value()
    assert found == built
    assert answer["system"] == built.system
    assert [atom["text"] for atom in answer["atomsUsed"]][:1] == ["Ana likes tea."]
    empty_context = expect_json(await rest.post("/ai-working-context", json={}))
    assert (empty_context["atomsUsed"], empty_context["remembers"]) == ([], False)
    small = expect_json(await rest.post("/ai-working-context", json={**body, "tokenBudget": 1}))
    assert (small["overBudget"], small["turnsUsed"]) == (True, 0)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"conversationId": "conv_x"}, 404),
        ({"memorySpaceId": "ms_x"}, 404),
        ({"memorySpaceId": "ms_x", "recallQuery": "x"}, 404),
        ({"templateId": "mine"}, 404),
        ({"recentTurns": -1}, 422),
        ({"recentTurns": 1_001}, 422),
        ({"recallLimit": 2**70}, 422),
        ({"tokenBudget": 2**70}, 422),
        ({"tokenBudget": 1.5}, 422),
        ({"minScore": -1}, 422),
        ({"now": "2026-06-01"}, 422),
        ({"alwaysOnCategoryNames": "identity"}, 422),
        ({"countTokens": "len"}, 422),
    ],
)
async def test_invalid_working_context_requests_are_rejected(
    rest: RestClient, body: dict[str, Any], status: int
) -> None:
    expect_json(await rest.post("/ai-working-context", json=body), status)
