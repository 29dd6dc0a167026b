"""The server matches its OpenAPI document: allowed methods and strict types."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import Tellback
from tests.support.rest import RestClient, expect_json, rest_client
from tests.support.rest_data import SPEC_AGENT, open_tellback

pytestmark = pytest.mark.slow


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with open_tellback(":memory:") as opened:
        yield opened


@pytest.fixture
async def rest(tb: Tellback) -> AsyncIterator[RestClient]:
    async with rest_client(tb) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/ai-conversations", "GET, POST"),
        ("/ai-conversations/conv_1", "GET"),
        ("/ai-conversations/chat", "POST"),
        ("/ai-memory/atoms/atom_1", "DELETE, GET"),
        ("/ai-memory/bindings/bind_1", "DELETE, GET, PATCH"),
        ("/health/live", "GET"),
    ],
)
async def test_an_unsupported_method_reports_the_allowed_methods(rest: RestClient, path: str, methods: str) -> None:
    answer = await rest.put(path)
    assert expect_json(answer, 405)["detail"] == f"Method not allowed. Allowed: {methods}."
    assert answer.headers["Allow"] == methods


@pytest.mark.parametrize(
    "wrong",
    [
        {"importance": "3"},
        {"importance": True},
        {"confidence": "0.5"},
        {"validFrom": 0},
        {"validFrom": "0"},
        {"validFrom": "2026-01-01T00:00:00"},
    ],
    ids=str,
)
async def test_strings_as_numbers_and_numbers_as_dates_are_rejected(rest: RestClient, wrong: dict[str, Any]) -> None:
    space = expect_json(await rest.post("/ai-memory/spaces", json={}), 201)["id"]
    problem = expect_json(await rest.post(f"/ai-memory/spaces/{space}/atoms", json={"text": "x", **wrong}), 422)
    assert problem["errors"][0]["at"] == f"body.{next(iter(wrong))}"


async def test_integers_are_accepted_for_float_fields(rest: RestClient) -> None:
    space = expect_json(await rest.post("/ai-memory/spaces", json={}), 201)["id"]
    atom = expect_json(await rest.post(f"/ai-memory/spaces/{space}/atoms", json={"text": "x", "confidence": 1}), 201)
    assert atom["confidence"] == 1.0


async def test_a_numeric_created_at_is_rejected(rest: RestClient) -> None:
    conversation = expect_json(await rest.post("/ai-conversations", json={"namespace": "chat"}), 201)["id"]
    for moment in (0, "0", "2026-01-01T00:00:00"):
        body = {"content": "Hi", "createdAt": moment}
        assert expect_json(await rest.post(f"/ai-conversations/{conversation}/user-messages", json=body), 422)


async def test_an_empty_idempotency_key_is_rejected(rest: RestClient) -> None:
    conversation = expect_json(await rest.post("/ai-conversations", json={"namespace": "chat"}), 201)["id"]
    for path in (f"{conversation}/user-messages", "chat"):
        answer = await rest.post(f"/ai-conversations/{path}", json={"content": "Hi"}, headers={"Idempotency-Key": ""})
        assert expect_json(answer, 422)


async def test_a_decision_on_an_unknown_call_is_a_client_error(rest: RestClient) -> None:
    conversation = expect_json(await rest.post("/ai-conversations", json={"namespace": "chat"}), 201)["id"]
    decision = {"approvals": {"call_1": True}}
    path = f"/ai-agents/{SPEC_AGENT}/invoke"
    assert (
        "call_1" in expect_json(await rest.post(path, json={**decision, "conversationId": conversation}), 422)["detail"]
    )
    assert "conversationId" in expect_json(await rest.post(path, json=decision), 422)["detail"]
    assert expect_json(await rest.post(path, json={**decision, "conversationId": "conv_1"}), 404)
