"""No request reaches data of another tenant, another app, or another user of the same app.

The requests cover every operation of the OpenAPI document, with another user's id in each field that accepts an id.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.types.access import ApiKeyRole
from tests.support.http_server import app_client, running_server
from tests.support.rest_data import SampleData, create_sample_data, flight_agent, open_tellback, start_session
from tests.support.rest_requests import ENDLESS_OPERATIONS, IdPlace, Operation, missing_places, operations

pytestmark = pytest.mark.slow

WORD = "Zanzibar"
SETTINGS = ServerSettings(rate_limit=None, failure_limit=None)

DOCUMENT: dict[str, Any] = create_app(Tellback(":memory:"), SETTINGS, agents=[flight_agent()]).openapi()
OPERATIONS = operations(DOCUMENT)

WITHOUT_A_CREDENTIAL = frozenset({"live", "ready", "read_metrics"})

# Fields in which another user's id means an unknown name, or a name that callers choose.
OTHER_MEANING = {
    ("recall_by_entity", "entityIdOrName"),
    ("recall_timeline", "entityIdOrName"),
    ("list_jobs", "conversationId"),
    ("list_everyones_jobs", "conversationId"),
    ("get_usage", "jobId"),
    ("create_conversation", "sessionId"),
    ("find_or_create_conversation", "sessionId"),
    ("chat", "sessionId"),
}


@dataclass
class Intruder:
    """A caller with a valid credential and own data."""

    sample_data: SampleData
    role: ApiKeyRole
    client: httpx2.AsyncClient
    is_of_another_app: bool

    async def ask(self, **request: Any) -> httpx2.Response:
        answer = await self.client.request(**request)
        failure_message = f"{request['method']} {request['url']}: {answer.status_code} {answer.text[:500]}"
        assert answer.status_code < 500, failure_message
        assert WORD not in answer.text, failure_message
        return answer


@pytest.fixture
async def tb(url: str) -> AsyncIterator[Tellback]:
    async with open_tellback(url) as tellback:
        yield tellback


@pytest.fixture
def app(tb: Tellback) -> Any:
    return create_app(tb, SETTINGS, agents=[flight_agent()], opens=False)


async def create_user_with_key(
    tb: Tellback, app: Any, scope: tuple[str, str, str], role: ApiKeyRole, word: str
) -> tuple[SampleData, str]:
    """A user with one object of every kind, and the secret of the user's key."""
    tenant, app_id, user = scope
    sample_data = await create_sample_data(tb, tb.user(user, tenant, app_id), word)
    key_user = user if role == "user" else None
    secret = (await tb.keys.create(role, tenant_id=tenant, app_id=app_id, user_id=key_user)).secret
    async with app_client(app, secret, user) as client:
        await start_session(client, sample_data)
    return sample_data, secret


@pytest.fixture
async def victim(tb: Tellback, app: Any) -> SampleData:
    return (await create_user_with_key(tb, app, ("acme", "default", "maya"), "app", WORD))[0]


INTRUDERS: dict[str, tuple[tuple[str, str, str], ApiKeyRole]] = {
    "admin of another tenant": (("globex", "default", "maya"), "admin"),
    "admin of another app": (("acme", "shop", "maya"), "admin"),
    "another user": (("acme", "default", "omar"), "user"),
    "another user of an app": (("acme", "default", "olga"), "app"),
}


@pytest.fixture
async def intruders(tb: Tellback, app: Any, victim: SampleData) -> AsyncIterator[list[Intruder]]:
    async with AsyncExitStack() as stack:
        found = []
        for number, (scope, role) in enumerate(INTRUDERS.values()):
            sample_data, secret = await create_user_with_key(tb, app, scope, role, f"Oslo{number}")
            client = await stack.enter_async_context(app_client(app, secret, scope[2]))
            found.append(Intruder(sample_data, role, client, scope[:2] != ("acme", "default")))
        yield found


def test_every_id_field_is_tested() -> None:
    assert {each.id: missing_places(DOCUMENT, each) for each in OPERATIONS if missing_places(DOCUMENT, each)} == {}


async def test_the_test_requests_work_for_the_owner() -> None:
    """This ensures that other callers fail only because the data is not theirs."""
    async with open_tellback(":memory:") as tb:
        app = create_app(tb, SETTINGS, agents=[flight_agent()], opens=False)
        failures = {}
        for number, operation in enumerate(OPERATIONS):
            if operation.id in ENDLESS_OPERATIONS | WITHOUT_A_CREDENTIAL:
                continue
            sample_data, secret = await create_user_with_key(
                tb, app, ("acme", f"app{number}", "maya"), "admin", f"Oslo{number}"
            )
            async with app_client(app, secret, "maya") as client:
                answer = await client.request(**operation.request(make_id_chooser(sample_data)))
            if answer.status_code >= 300:
                failures[operation.id] = answer.text
    assert failures == {}


async def test_no_operation_reaches_another_users_data(
    tb: Tellback, victim: SampleData, intruders: list[Intruder]
) -> None:
    before = await snapshot(tb, victim)
    for intruder in intruders:
        for operation in OPERATIONS:
            if operation.id not in ENDLESS_OPERATIONS | WITHOUT_A_CREDENTIAL:
                await try_everything(operation, intruder, victim)
    assert await snapshot(tb, victim) == before


async def try_everything(operation: Operation, intruder: Intruder, victim: SampleData) -> None:
    """Yield requests with another user's id in each field, and in all fields."""
    tries: list[tuple[IdPlace, ...]] = [(place,) for place in operation.places]
    for stolen in [*tries, operation.places] if len(tries) != 1 else tries:
        answer = await intruder.ask(**operation.request(make_id_chooser(intruder.sample_data, victim, stolen)))
        failure_message = f"{intruder.role} {operation.id} {stolen}: {answer.status_code} {answer.text[:300]}"
        if answer.status_code == 403:
            assert operation.path.startswith("/ai-admin"), failure_message
            assert intruder.role != "admin", failure_message
        elif any(is_refused(operation, place, intruder) for place in stolen):
            assert answer.status_code == 404, failure_message
        else:
            assert answer.status_code < 500, failure_message


def make_id_chooser(
    own: SampleData, others: SampleData | None = None, stolen: tuple[IdPlace, ...] = ()
) -> Callable[[IdPlace, str], str]:
    """Build a request with own ids, and another user's ids in some fields."""

    def choose_id(place: IdPlace, kind: str) -> str:
        is_stolen = others is not None and place in stolen and kind not in ("word", "user")
        return (others if others is not None and is_stolen else own).id_of(kind)

    return choose_id


def is_refused(operation: Operation, place: IdPlace, intruder: Intruder) -> bool:
    """Whether the id in that field must exist."""
    if operation.id == "respond":
        return not intruder.is_of_another_app  # session ids are unique per app
    return (operation.id, place.name) not in OTHER_MEANING


async def snapshot(tb: Tellback, sample_data: SampleData) -> dict[str, Any]:
    """Return all data of a user, and data about the user."""
    export = await sample_data.user.admin.export_user_data()
    scope = sample_data.user.scope
    app_scope: dict[str, Any] = {"tenant_id": scope.tenant_id, "app_id": scope.app_id}
    return {
        **{name: value for name, value in export.items() if name != "exported_at"},
        "jobs": [each for each in await tb.jobs.list(**app_scope) if each.scope == scope],
        "bindings": [each for each in await tb.bindings.list(**app_scope) if each.created_by == scope.user_id],
        "keys": [each for each in await tb.keys.list(**app_scope) if each.user_id == scope.user_id],
        "events": [each for each in await tb.events.read(limit=1_000) if each.scope == scope],
    }


async def test_cursors_of_other_users_are_rejected(victim: SampleData, intruders: list[Intruder]) -> None:
    for intruder in intruders:
        for operation in OPERATIONS:
            if "cursor" in parameters(operation):
                own_request = operation.request(make_id_chooser(intruder.sample_data))
                for id in victim.ids.values():
                    cursor = base64.urlsafe_b64encode(id.encode()).decode().rstrip("=")
                    answer = await intruder.ask(
                        **{**own_request, "params": {**own_request.get("params", {}), "cursor": cursor}}
                    )
                    assert answer.status_code in (200, 403, 404, 422)


async def test_a_users_credential_cannot_act_for_another_user(app: Any, tb: Tellback, victim: SampleData) -> None:
    before = await snapshot(tb, victim)
    secret = (await tb.keys.create("user", tenant_id="acme", user_id="omar")).secret
    async with app_client(app, secret, "maya") as client:
        for operation in OPERATIONS:
            if operation.id not in WITHOUT_A_CREDENTIAL:
                answer = await client.request(**operation.request(make_id_chooser(victim)))
                assert answer.status_code == 403, operation.id
                assert WORD not in answer.text
    assert await snapshot(tb, victim) == before


@pytest.mark.parametrize("role", ["user", "app"])
async def test_only_an_admin_can_pass_another_users_id(
    app: Any, tb: Tellback, victim: SampleData, role: ApiKeyRole
) -> None:
    before = await snapshot(tb, victim)
    secret = (await tb.keys.create(role, tenant_id="acme", user_id="omar" if role == "user" else None)).secret
    tried_operations = []
    async with app_client(app, secret, "omar") as client:
        for operation in OPERATIONS:
            request = operation.request(make_id_chooser(victim))
            for part, user_fields in user_fields_of(operation):
                if (operation.id, role) in (("create_binding", "app"), ("create_chat_completion", "app")):
                    continue
                named_request = {**request, part: {**request.get(part, {}), **user_fields}}
                answer = await client.request(**named_request)
                assert answer.status_code == 403, f"{operation.id}: {answer.status_code} {answer.text[:300]}"
                tried_operations.append(operation.id)
    assert {"export_user_data", "delete_user_data", "get_usage", "get_usage_totals", "create_key"} <= set(
        tried_operations
    )
    assert await snapshot(tb, victim) == before


def user_fields_of(operation: Operation) -> list[tuple[str, dict[str, Any]]]:
    """Yield the ways in which a request can contain the user's id."""
    found: list[tuple[str, dict[str, Any]]] = []
    if "userId" in parameters(operation):
        found.append(("params", {"userId": "maya"}))
    body = operation.description.get("requestBody")
    if body is not None:
        body_schema = body["content"]["application/json"]["schema"]
        schema = next(each for each in (body_schema, *body_schema.get("anyOf", ())) if "$ref" in each)
        properties = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"]
        found += [("json", {name: "maya"}) for name in ("userId", "user") if name in properties]
        if "conversationScope" in properties:
            found += [("json", {"conversationScope": {"userId": user}}) for user in ("maya", "*")]
    return found


def parameters(operation: Operation) -> set[str]:
    """Return the parameters of an operation."""
    return {each["name"] for each in operation.description["parameters"] if "name" in each}


async def test_another_tenants_admin_gets_its_own_user_of_that_id(
    tb: Tellback, victim: SampleData, intruders: list[Intruder]
) -> None:
    before = await snapshot(tb, victim)
    for intruder in intruders[:2]:
        for operation in OPERATIONS:
            for part, user_fields in user_fields_of(operation):
                request = operation.request(make_id_chooser(intruder.sample_data))
                await intruder.ask(**{**request, part: {**request.get(part, {}), **user_fields}})
            if "everyone" in parameters(operation) and operation.id not in ENDLESS_OPERATIONS:
                await intruder.ask(method="GET", url=operation.path, params={"everyone": True})
    assert await snapshot(tb, victim) == before


async def test_an_idempotency_key_never_returns_another_users_response(
    app: Any, tb: Tellback, victim: SampleData, intruders: list[Intruder]
) -> None:
    secret = (await tb.keys.create("app", tenant_id="acme")).secret
    repeated_request: dict[str, Any] = {"json": {"name": "goals"}, "headers": {"Idempotency-Key": "once"}}
    async with app_client(app, secret, "maya") as client:
        first = (await client.post("/ai-memory/spaces", **repeated_request)).json()
    created = {first["id"]}
    for intruder in intruders:
        answer = await intruder.ask(method="POST", url="/ai-memory/spaces", **repeated_request)
        assert answer.status_code == 201
        assert "Idempotency-Replayed" not in answer.headers
        created.add(answer.json()["id"])
    assert len(created) == 1 + len(intruders)


async def test_events_of_other_users_are_never_sent(app: Any, tb: Tellback, victim: SampleData) -> None:
    omar = tb.user("omar", "acme")
    last_conversation = await omar.conversations.create("the-last-one")
    cases: list[tuple[ApiKeyRole, dict[str, Any], str]] = [
        ("user", {"tenant_id": "acme", "user_id": "omar"}, last_conversation.id),
        ("admin", {"tenant_id": "globex"}, (await tb.user("maya", "globex").conversations.create("own")).id),
    ]
    async with running_server(app) as url:
        for role, key_scope, own_id in cases:
            secret = (await tb.keys.create(role, **key_scope)).secret
            async with app_client(app, secret) as client:
                client = httpx2.AsyncClient(base_url=url, headers=client.headers, timeout=20)
            query: dict[str, Any] = {"after": "0", **({"everyone": "true"} if role == "admin" else {})}
            received = ""
            async with client, client.stream("GET", "/ai-events", params=query) as answer:
                assert answer.status_code == 200
                async for line in answer.aiter_lines():
                    received += line
                    if own_id in line:
                        break
            assert WORD not in received
            assert not any(
                id in received for kind, id in victim.ids.items() if kind not in ("user", "session", "model")
            )


async def test_only_the_victims_data_contains_the_word(tb: Tellback, victim: SampleData) -> None:
    export = await tb.user("maya", "acme").admin.export_user_data()
    for name in ("conversations", "spaces", "atoms", "entities", "bindings", "usage", "api_keys"):
        assert WORD in json.dumps(export[name], default=str), (
            f"the {name} do not contain {WORD}: its absence proves nothing"
        )
    assert WORD not in json.dumps(DOCUMENT)
