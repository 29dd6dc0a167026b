"""`/ai-agents/{name}/sessions`: sessions are created, read, changed and deleted only by their user."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback import Persistence, Tellback
from tellback.agent import Agent
from tellback.agent.sessions.persistence import InMemorySessions
from tellback.errors import PreconditionFailedError
from tellback.server import ServerSettings, create_app
from tellback.server.requests import is_not_modified, require_match
from tellback.server.tenant_agents import MAX_RECENT_AGENTS, TenantAgents, TenantIds
from tellback.sessions import InMemoryAdapter
from tellback.testing import FunctionModel
from tellback.types.access import ApiKeyRole
from tellback.wire.agents import SessionEventWire, SessionMessageWire, SessionWire, session_etag
from tests.support.http_server import app_client

PATH = "/ai-agents/Plain/sessions"


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None) as opened:
        yield opened


@pytest.fixture(params=["kept", "own"])
def app(tb: Tellback, request: pytest.FixtureRequest) -> Any:
    """A server whose agents store their sessions in the Tellback, or in their own adapter."""
    persistence = None if request.param == "kept" else Persistence(InMemoryAdapter())
    model = FunctionModel(lambda request: f"You said {request.messages[-1].content}")
    agents = [Agent(name, model=model, persistence=persistence) for name in ("Plain", "Other")]
    return create_app(tb, ServerSettings(rate_limit=None), agents=agents, opens=False)


async def client(
    tb: Tellback, app: Any, user: str = "maya", tenant: str = "acme", role: ApiKeyRole = "user"
) -> httpx2.AsyncClient:
    created = await tb.keys.create(role, tenant_id=tenant, user_id=user if role == "user" else None)
    return app_client(app, created.secret, None if role == "user" else user)


@pytest.fixture
async def maya(tb: Tellback, app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with await client(tb, app) as opened:
        yield opened


async def send_text(caller: httpx2.AsyncClient, text: str, id: str = "web-42", agent: str = "Plain") -> dict[str, Any]:
    answer = await caller.post(f"/ai-agents/{agent}/respond", json={"message": text, "sessionId": id})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_session_is_created_and_read(maya: httpx2.AsyncClient) -> None:
    created = await maya.post(PATH, json={"id": "web-42", "initialData": {"channel": "web"}})
    assert created.status_code == 201, created.text
    assert created.headers["etag"] == '"v0"'
    session = SessionWire.model_validate(created.json()).value()
    assert (session.id, session.user_id, session.agent_name) == ("web-42", "maya", "Plain")
    assert session.collected_data["channel"] == "web"
    await send_text(maya, "Hi")
    stored = (await maya.get(f"{PATH}/web-42")).json()
    assert (stored["version"], stored["messageCount"]) == (1, 2)
    assert (await maya.post(PATH, json={})).json()["id"].startswith("session_")


async def test_a_session_id_can_be_used_once(maya: httpx2.AsyncClient) -> None:
    assert (await maya.post(PATH, json={"id": "web-42"})).status_code == 201
    conflict = await maya.post(PATH, json={"id": "web-42"})
    assert (conflict.status_code, conflict.json()["code"]) == (409, "session-conflict")
    assert conflict.json()["data"]["id"] == "web-42"


async def test_a_session_id_of_another_user_is_a_conflict_without_details(
    tb: Tellback, app: Any, maya: httpx2.AsyncClient
) -> None:
    for _ in range(3):
        await send_text(maya, "Hi")
    async with await client(tb, app, "omar") as omar:
        conflict = await omar.post(PATH, json={"id": "web-42"})
    assert (conflict.status_code, conflict.json()["code"]) == (409, "session-conflict")
    assert conflict.json()["detail"] == "A session with the id 'web-42' already exists. Choose another id."
    assert conflict.json()["data"] == {"id": "web-42", "version": 0, "stored": 0}


async def test_session_messages_are_read_in_pages(maya: httpx2.AsyncClient) -> None:
    for text in ("one", "two", "three"):
        await send_text(maya, text)
    found: list[str] = []
    params: dict[str, Any] = {"limit": 4}
    while True:
        page = (await maya.get(f"{PATH}/web-42/messages", params=params)).json()
        values = [SessionMessageWire.model_validate(each).value() for each in page["items"]]
        found = [each.content for each in values] + found
        if page["nextCursor"] is None:
            break
        params["cursor"] = page["nextCursor"]
    assert found == ["one", "You said one", "two", "You said two", "three", "You said three"]
    events = (await maya.get(f"{PATH}/web-42/history")).json()["items"]
    texts = [SessionEventWire.model_validate(each).value().data for each in events]
    assert [getattr(each, "message", "") for each in texts] == found


async def test_sessions_are_listed_by_agent_and_status(maya: httpx2.AsyncClient) -> None:
    for id in ("a", "b", "c", "d", "e"):
        await send_text(maya, "Hi", id)
        await send_text(maya, "Hi", f"other-{id}", "Other")
    await maya.post(f"{PATH}/c/complete")
    for params, expected in (({}, "edcba"), ({"status": "active"}, "edba"), ({"status": "completed"}, "c")):
        found: list[str] = []
        query: dict[str, Any] = {"limit": 2, **params}
        while True:
            page = (await maya.get(PATH, params=query)).json()
            assert len(page["items"]) <= 2
            found += [each["id"] for each in page["items"]]
            if page["nextCursor"] is None:
                break
            query["cursor"] = page["nextCursor"]
        assert "".join(found) == expected


async def test_a_session_is_ended(maya: httpx2.AsyncClient) -> None:
    await send_text(maya, "Hi")
    completed = await maya.post(f"{PATH}/web-42/complete")
    assert (completed.json()["status"], completed.headers["etag"]) == ("completed", '"v1-completed"')
    assert completed.json()["completedAt"] is not None
    response = await maya.patch(f"{PATH}/web-42", json={"status": "active"})
    assert (response.json()["status"], response.headers["etag"]) == ("active", '"v1"')
    assert (await maya.post(f"{PATH}/web-42/abandon")).json()["status"] == "abandoned"
    assert (await maya.delete(f"{PATH}/web-42")).status_code == 204
    assert (await maya.get(f"{PATH}/web-42")).status_code == 404
    assert (await maya.delete(f"{PATH}/web-42")).status_code == 404


async def test_an_unchanged_session_is_a_304(maya: httpx2.AsyncClient) -> None:
    await send_text(maya, "Hi")
    tag = (await maya.get(f"{PATH}/web-42")).headers["etag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        answer = await maya.get(f"{PATH}/web-42", headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    await send_text(maya, "Hi again")
    assert (await maya.get(f"{PATH}/web-42", headers={"If-None-Match": tag})).status_code == 200


@pytest.mark.parametrize(
    ("method", "end", "body"),
    [
        ("PATCH", "", {"status": "completed"}),
        ("DELETE", "", None),
        ("POST", "/complete", None),
        ("POST", "/abandon", None),
    ],
)
async def test_a_session_is_not_changed_if_its_etag_differs(
    maya: httpx2.AsyncClient, method: str, end: str, body: Any
) -> None:
    tag = (await maya.post(PATH, json={"id": "web-42"})).headers["etag"]
    await send_text(maya, "Hi")
    for stale in (tag, 'W/"v1"', '"v1'):
        answer = await maya.request(method, f"{PATH}/web-42{end}", json=body, headers={"If-Match": stale})
        assert (answer.status_code, answer.json()["code"]) == (412, "precondition-failed")
    assert (await maya.get(f"{PATH}/web-42")).json()["status"] == "active"
    passed = await maya.request(method, f"{PATH}/web-42{end}", json=body, headers={"If-Match": '"v0", "v1"'})
    assert passed.is_success


async def test_sessions_of_other_users_are_not_found(tb: Tellback, app: Any, maya: httpx2.AsyncClient) -> None:
    await send_text(maya, "Hi")
    strangers: list[tuple[str, str, ApiKeyRole]] = [
        ("omar", "acme", "user"),
        ("maya", "globex", "user"),
        ("maya", "default", "admin"),
    ]
    for user, tenant, role in strangers:
        async with await client(tb, app, user, tenant, role) as other:
            for method, end, body in (
                ("GET", "", None),
                ("PATCH", "", {"status": "completed"}),
                ("DELETE", "", None),
                ("POST", "/complete", None),
                ("POST", "/abandon", None),
                ("GET", "/messages", None),
                ("GET", "/history", None),
            ):
                answer = await other.request(method, f"{PATH}/web-42{end}", json=body)
                assert (answer.status_code, answer.json()["code"]) == (404, "not-found"), (user, tenant, end)
            assert (await other.get(PATH)).json()["items"] == []
    assert (await maya.get(f"{PATH}/web-42")).json()["version"] == 1


async def test_a_session_belongs_to_one_agent(maya: httpx2.AsyncClient) -> None:
    await send_text(maya, "Hi")
    assert (await maya.get("/ai-agents/Other/sessions/web-42")).status_code == 404
    body = {"message": "Hi", "sessionId": "web-42"}
    assert (await maya.post("/ai-agents/Other/respond", json=body)).status_code == 404
    assert (await maya.get("/ai-agents/nobody/sessions/web-42")).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {"id": ""},
        {"id": "x" * 151},
        {"id": "a\x00"},
        {"initialData": {"owner": "me"}},
        {"initialData": {"routeHistory": []}},
        {"initialData": {"k": "x" * 20_000}},
        {"userId": "omar"},
        {"status": "lost"},
    ],
)
async def test_invalid_sessions_are_rejected(maya: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    assert (await maya.post(PATH, json=body)).status_code == 422


@pytest.mark.parametrize(
    "query",
    ["?cursor=AA", "?cursor=!!", "?limit=0", "?status=lost", "?cursor=OTk5OTk5OTk5OTk5OTk5OTk5IHg"],
)
async def test_invalid_session_cursors_are_rejected(maya: httpx2.AsyncClient, query: str) -> None:
    assert (await maya.get(PATH + query)).status_code == 422
    await send_text(maya, "Hi")
    if "status" not in query:
        assert (await maya.get(f"{PATH}/web-42/messages{query}")).status_code == 422


async def test_erasing_a_user_deletes_the_sessions(tb: Tellback) -> None:
    agent = Agent("Plain", model=FunctionModel(lambda _: "Noted."))
    app = create_app(tb, ServerSettings(), agents=[agent], opens=False)
    async with await client(tb, app) as caller:
        await send_text(caller, "Hi")
        export = (await caller.get("/ai-admin/export")).json()
        assert [each["id"] for each in export["sessions"]] == ["web-42"]
    await tb.user("maya", "acme").admin.delete_user_data(confirm=True)
    async with await client(tb, app) as caller:
        assert (await caller.get(f"{PATH}/web-42")).status_code == 404


async def test_a_session_store_without_lists_does_not_support_them(tb: Tellback) -> None:
    agent = Agent("Plain", model=FunctionModel(lambda _: "Noted."), persistence=InMemorySessions())
    app = create_app(tb, ServerSettings(), agents=[agent], opens=False)
    async with await client(tb, app) as caller:
        await send_text(caller, "Hi")
        answer = await caller.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (503, "not-configured")


async def test_an_agent_in_use_is_never_built_twice(tb: Tellback, monkeypatch: pytest.MonkeyPatch) -> None:
    from tellback.server import tenant_agents
    from tellback.server.auth import Caller, Principal, ServerContext

    monkeypatch.setattr(tenant_agents, "MAX_RECENT_AGENTS", 2)
    assert MAX_RECENT_AGENTS > 2
    home = ServerContext(tb, ServerSettings(), {"Plain": Agent("Plain")})
    cache = TenantAgents()

    def agent_of(tenant: str) -> Agent:
        return cache.agent(Caller(home, Principal("k", tenant, "default", "app"), "maya"), "Plain").agent

    used_agent = agent_of("t0")
    for number in range(1, 5):
        agent_of(f"t{number}")
    assert agent_of("t0") is used_agent
    assert len(cache._recent) == 2


tags = st.builds(session_etag, st.integers(0, 10), st.sampled_from(["active", "completed", "abandoned"]))


@given(st.lists(tags, max_size=4), tags)
def test_an_etag_matches_if_it_is_in_the_list(known: list[str], tag: str) -> None:
    line = " , ".join(known)
    assert is_not_modified([line], tag) == (tag in known)
    assert is_not_modified([f"W/{each}" for each in known], tag) == (tag in known)
    if tag in known:
        require_match([line], tag)
    else:
        with pytest.raises(PreconditionFailedError):
            require_match([line], tag)
    with pytest.raises(PreconditionFailedError):
        require_match([f"W/{tag}"], tag)
    with pytest.raises(PreconditionFailedError):
        require_match(["*"], None)


@given(st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3), st.text(min_size=1, max_size=60)), max_size=6))
def test_ids_of_different_apps_are_stored_differently(ids: list[tuple[str, str, str]]) -> None:
    apps = [*ids, ("default", "default", "web-42"), ("acme", "default", "web-42")]
    stored: dict[str, tuple[str, str, str]] = {}
    for tenant, app, id in apps:
        names = TenantIds(tenant, app)
        encoded = names.to_stored(id)
        assert names.from_stored(encoded) == id
        assert stored.setdefault(encoded, (tenant, app, id)) == (tenant, app, id)


@pytest.mark.parametrize("id", ["a/b", "/", "a\nb", "\x7f", "\x85", ".", "..", "", "x" * 151])
async def test_a_session_id_that_is_invalid_in_urls_is_rejected(tb: Tellback, app: Any, id: str) -> None:
    async with await client(tb, app) as caller:
        assert (await caller.post(PATH, json={"id": id})).status_code == 422
        answer = await caller.post("/ai-agents/Plain/respond", json={"message": "Hi", "sessionId": id})
        assert answer.status_code == 422
        assert (await caller.get(PATH)).json()["items"] == []


@pytest.mark.parametrize("id", ["web-42", "zoë", "a b?#%2F", "...", "x" * 150])
async def test_any_other_session_id_works(tb: Tellback, app: Any, id: str) -> None:
    async with await client(tb, app) as caller:
        assert (await caller.post(PATH, json={"id": id})).status_code == 201
        assert (await caller.get(f"{PATH}/{quote(id, safe='')}")).json()["id"] == id
