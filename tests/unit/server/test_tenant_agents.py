"""Agents with routes over REST: sessions and memory are separate for each tenant, app and user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from tellback import Persistence, Tellback
from tellback.agent import Agent
from tellback.agent.sessions.persistence import InMemorySessions
from tellback.server import ServerSettings, create_app
from tellback.sessions import InMemoryAdapter, SqliteAdapter
from tellback.testing import FunctionModel
from tellback.types.access import ApiKeyRole
from tests.support.http_server import app_client
from tests.support.travel_agents import TripSetup


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None) as opened:
        yield opened


async def client(
    tb: Tellback,
    role: ApiKeyRole = "user",
    user: str = "maya",
    *agents: Agent,
    tenant: str = "default",
    app: Any = None,
    **fields: Any,
) -> httpx2.AsyncClient:
    created = await tb.keys.create(role, tenant_id=tenant, user_id=user if role == "user" else None)
    server = app or create_app(tb, ServerSettings(rate_limit=None, **fields), agents=agents, opens=False)
    return app_client(server, created.secret, None if role == "user" else user)


def shared_by_all(kind: str, tb: Tellback) -> Any:
    """Session stores that do not know tenants."""
    if kind == "in the tellback":
        return Persistence(SqliteAdapter(tb))
    return {"own adapter": Persistence(InMemoryAdapter()), "own store": InMemorySessions(), "none": None}[kind]


@pytest.mark.parametrize("kind", ["none", "in the tellback", "own adapter", "own store"])
async def test_users_with_the_same_id_in_two_tenants_share_no_session(tb: Tellback, kind: str) -> None:
    prompts: list[str] = []

    async def record_prompt(request: Any) -> str:
        prompts.append(" ".join(str(each.content) for each in request.messages))
        return "Noted."

    agent = Agent("Plain", model=FunctionModel(record_prompt), persistence=shared_by_all(kind, tb))
    app = create_app(tb, ServerSettings(rate_limit=None), agents=[agent], opens=False)
    body = {"sessionId": "web-42"}
    for tenant in ("acme", "globex", "default"):
        async with await client(tb, "user", "maya", tenant=tenant, app=app) as caller:
            answer = await caller.post("/ai-agents/Plain/respond", json={**body, "message": f"I am of {tenant}"})
            assert answer.status_code == 200, answer.text
            assert answer.json()["session"]["version"] == 1
            assert answer.json()["session"]["id"] == "web-42"
            second = await caller.post("/ai-agents/Plain/respond", json={**body, "message": "And?"})
            assert second.json()["session"]["version"] == 2
    for number, tenant in ((1, "acme"), (3, "globex"), (5, "default")):
        assert f"I am of {tenant}" in prompts[number]
        assert prompts[number].count("I am of") == 1


@pytest.mark.parametrize("kind", ["none", "in the tellback", "own adapter", "own store"])
async def test_another_user_cannot_continue_a_session(tb: Tellback, kind: str) -> None:
    agent = Agent("Plain", model=FunctionModel(lambda _: "Noted."), persistence=shared_by_all(kind, tb))
    app = create_app(tb, ServerSettings(rate_limit=None), agents=[agent], opens=False)
    body = {"sessionId": "web-42", "message": "Hi"}
    async with await client(tb, "user", "maya", app=app) as maya:
        assert (await maya.post("/ai-agents/Plain/respond", json=body)).status_code == 200
    async with await client(tb, "user", "omar", app=app) as omar:
        answer = await omar.post("/ai-agents/Plain/respond", json=body)
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
        assert (await omar.get("/ai-agents/Plain/diagram", params={"sessionId": "web-42"})).status_code == 404


async def test_an_id_with_another_apps_prefix_is_rejected(tb: Tellback) -> None:
    adapter = InMemoryAdapter()
    agent = Agent("Plain", model=FunctionModel(lambda _: "Noted."), persistence=Persistence(adapter))
    app = create_app(tb, ServerSettings(rate_limit=None), agents=[agent], opens=False)
    async with await client(tb, "user", "maya", tenant="acme", app=app) as caller:
        await caller.post("/ai-agents/Plain/respond", json={"sessionId": "web-42", "message": "Hi"})
    [stored] = adapter.snapshot()["sessions"]
    assert stored.user_id is not None
    async with await client(tb, "app", stored.user_id, app=app) as caller:
        body = {"sessionId": stored.id, "message": "Hi"}
        assert (await caller.post("/ai-agents/Plain/respond", json=body)).status_code == 422
        assert (await caller.get("/ai-agents/Plain/sessions")).status_code == 422


async def test_sessions_created_in_process_can_be_continued_over_rest(tb: Tellback) -> None:
    agent = Agent(
        "Plain", model=FunctionModel(lambda _: "Noted."), persistence=Persistence(InMemoryAdapter()), memory=tb
    )
    await agent.respond("Hi", "web-42", user="maya")
    async with await client(tb, "user", "maya", agent) as caller:
        answer = await caller.post("/ai-agents/Plain/respond", json={"sessionId": "web-42", "message": "Hi again"})
    assert answer.json()["session"]["version"] == 2


async def test_an_agent_built_with_one_users_memory_uses_the_callers_memory(tb: Tellback) -> None:
    agent = Agent("Plain", model=FunctionModel(lambda _: "Noted."), memory=tb.user("author"))
    async with await client(tb, "user", "maya", agent) as caller:
        answer = await caller.post("/ai-agents/Plain/respond", json={"message": "I am Maya"})
    assert answer.status_code == 200, answer.text
    assert await tb.user("author").conversations.list() == []
    assert len(await tb.user("maya").conversations.list()) == 1


async def test_responding_needs_a_user(tb: Tellback) -> None:
    created = await tb.keys.create("app")
    app = create_app(tb, ServerSettings(), agents=[TripSetup(None).agent], opens=False)
    async with app_client(app, created.secret) as caller:
        assert (await caller.get("/ai-agents")).status_code == 200
        assert (await caller.post("/ai-agents/Wanda/respond", json={"message": "Hi"})).status_code == 422
