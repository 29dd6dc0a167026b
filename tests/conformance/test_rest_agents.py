"""Agents with routes over REST, and repeated requests, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from tellback import Tellback
from tellback.agent import Agent
from tellback.server import ServerSettings, create_app
from tellback.testing import FunctionModel
from tests.support.http_server import app_client

# The server behaves the same on a file and in memory, so the file is enough.
pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)

KEY = {"Idempotency-Key": "k"}


@pytest.fixture
def app(tb: Tellback) -> Any:
    model = FunctionModel(lambda request: f"You said {request.messages[-1].content}")
    return create_app(tb, ServerSettings(), agents=[Agent("Plain", model=model)], opens=False)


async def test_a_session_continues_for_its_user_and_is_not_found_by_others(tb: Tellback, app: Any) -> None:
    body = {"sessionId": "web-42", "message": "Hi"}
    for tenant in ("acme", "globex"):
        created = await tb.keys.create("user", tenant_id=tenant, user_id="maya")
        async with app_client(app, created.secret) as maya:
            for version in (1, 2):
                answer = await maya.post("/ai-agents/Plain/respond", json=body)
                assert answer.json()["session"]["version"] == version, answer.text
            found = await maya.get("/ai-agents/Plain/sessions/web-42")
            assert (found.headers["etag"], found.json()["messageCount"]) == ('"v2"', 4)
            listed = (await maya.get("/ai-agents/Plain/sessions")).json()["items"]
            assert [each["id"] for each in listed] == ["web-42"]
            messages = (await maya.get("/ai-agents/Plain/sessions/web-42/messages")).json()["items"]
            assert [each["content"] for each in messages] == ["Hi", "You said Hi"] * 2
    created = await tb.keys.create("user", tenant_id="acme", user_id="omar")
    async with app_client(app, created.secret) as omar:
        assert (await omar.get("/ai-agents/Plain/sessions/web-42")).status_code == 404
        assert (await omar.post("/ai-agents/Plain/respond", json=body)).status_code == 404
        assert (await omar.get("/ai-agents/Plain/sessions")).json()["items"] == []


async def test_a_turn_with_an_idempotency_key_runs_once(tb: Tellback, app: Any) -> None:
    created = await tb.keys.create("user", user_id="maya")
    async with app_client(app, created.secret) as maya:
        answers = [await maya.post("/ai-agents/Plain/respond", json={"message": "Hi"}, headers=KEY) for _ in range(2)]
        other = await maya.post("/ai-agents/Plain/respond", json={"message": "Ho"}, headers=KEY)
    assert answers[0].content == answers[1].content
    assert answers[1].headers["etag"] == answers[0].headers["etag"]
    assert other.json()["code"] == "idempotency-conflict"
    [conversation] = await tb.user("maya").conversations.list()
    assert conversation.turns == 1
