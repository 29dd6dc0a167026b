"""The server matches its OpenAPI document: every response to arbitrary requests is declared, and none is a server
error.

`TELLBACK_CONTRACT_EXAMPLES` sends that many random requests to each operation, as an app and as an admin.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import requests
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import ignored_auth, negative_data_rejection, positive_data_acceptance

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tests.support.http_server import app_client
from tests.support.rest_data import SampleData, create_sample_data, flight_agent, start_session
from tests.support.server_thread import ServerThread

EXAMPLES = int(os.environ.get("TELLBACK_CONTRACT_EXAMPLES", "0"))
SECONDS = 20

Case = schemathesis.Case[Any]

_GUARDED = ("X-Tellback-User", "X-Request-Id")
"""Headers that are read before any operation. They are fixed here and have their own tests."""

_REFUSALS = ["400", "403", "404", "409", "413", "414", "415", "422", "431"]

_numbers = itertools.count(1)


def document() -> dict[str, Any]:
    """The OpenAPI document without the parts that all operations share."""
    app = create_app(Tellback(":memory:"), ServerSettings(), agents=[flight_agent()])
    found: dict[str, Any] = app.openapi()
    for methods in found["paths"].values():
        for operation in methods.values():
            operation["parameters"] = [
                each for each in operation["parameters"] if each.get("$ref", "").rpartition("/")[2] not in _GUARDED
            ]
            _events(operation)
    return found


def _events(operation: dict[str, Any]) -> None:
    """Validate an event stream event by event; OpenAPI 3.1 can only describe the whole text."""
    media = operation["responses"].get("200", {}).get("content", {}).get("text/event-stream")
    if media is not None:
        media["schema"] = {"type": "object", "properties": {name: {"type": "string"} for name in ("event", "data")}}


def config() -> SchemathesisConfig:
    """Use the same requests in each run, unless more are requested."""
    generation: dict[str, Any] = {"database": "none", "max-examples": EXAMPLES or 3, "deterministic": not EXAMPLES}
    return SchemathesisConfig.from_dict(
        {
            "suppress-health-check": ["all"],
            "request-timeout": SECONDS,
            "max-stream-events": 1,
            "generation": {**generation, "no-shrink": not EXAMPLES, "with-security-parameters": False},
            "checks": {"negative_data_rejection": {"expected-statuses": _REFUSALS}},
        }
    )


schema = schemathesis.openapi.from_dict(document(), config=config())


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller: its client and its sample data."""

    url: str
    sample_data: SampleData
    secrets: dict[str, str]
    role: str | None
    session: requests.Session
    checked: set[str]

    def headers(self, path: str) -> dict[str, str]:
        """Return the caller of a role, or of the role that the path needs."""
        role = self.role or ("admin" if path.startswith("/ai-admin") else "app")
        return {"Authorization": f"Bearer {self.secrets[role]}", "X-Tellback-User": "maya"}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with ServerThread() as running:
        yield running


@pytest.fixture(params=["app", "admin"] if EXAMPLES else [None])
def caller(server: ServerThread, request: pytest.FixtureRequest) -> Iterator[Caller]:
    number = next(_numbers)

    async def create_caller() -> tuple[SampleData, dict[str, str]]:
        scope: dict[str, Any] = {"tenant_id": "acme", "app_id": f"app{number}"}
        sample_data = await create_sample_data(server.tb, server.tb.user("maya", **scope), f"Zanzibar{number}")
        app_key = await server.tb.keys.create("app", **scope)
        admin_key = await server.tb.keys.create("admin", **scope)
        async with app_client(server.app, app_key.secret, "maya") as client:
            await start_session(client, sample_data)
        return sample_data, {"app": app_key.secret, "admin": admin_key.secret}

    sample_data, secrets = server.run(create_caller())
    with requests.Session() as session:
        yield Caller(server.url, sample_data, secrets, request.param, session, set())


@schema.parametrize()
def test_every_operation_responds_as_declared(case: Case, caller: Caller) -> None:
    make_real(case, caller.sample_data)
    excluded: list[Any] = [positive_data_acceptance]
    if case.operation.label in caller.checked:
        excluded.append(ignored_auth)
    headers = caller.headers(case.path)
    response = case.call(caller.url, caller.session, headers, timeout=SECONDS)
    if "idempotency-replayed" in response.headers:  # the first request with a key counts
        excluded.append(negative_data_rejection)
    sent: dict[str, Any] = {"base_url": caller.url, "session": caller.session, "headers": headers}
    case.validate_response(response, headers=headers, excluded_checks=excluded, transport_kwargs=sent)
    if response.status_code < 300:
        caller.checked.add(case.operation.label)


_FIELDS = {
    "conversationId": "conversation",
    "sourceConversationId": "conversation",
    "memorySpaceId": "space",
    "aliasId": "alias",
    "entityIdOrName": "entity",
    "jobId": "job",
    "sessionId": "session",
    "memorySpaceIds": "space",
    "entityIds": "entity",
    "sourceMessageIds": "message",
}


def make_real(case: Case, sample_data: SampleData) -> None:
    """Replace most generated ids and names by existing ones."""
    digest = hashlib.sha256(repr(case).encode(errors="replace")).digest()
    if digest[0] % 4 and not is_wrong(case, ParameterLocation.PATH):
        real = sample_data.path(case.path)
        case.path_parameters = {
            name: real[name] if isinstance(value, str) else value for name, value in case.path_parameters.items()
        }
    if digest[1] % 2:
        if case.query and not is_wrong(case, ParameterLocation.QUERY):
            case.query = {**real_fields(case.query, sample_data), **real_names(case.path, sample_data)}
        if isinstance(case.body, dict):
            case.body = real_fields(case.body, sample_data)


def is_wrong(case: Case, location: ParameterLocation) -> bool:
    """Whether a part of a request is intentionally invalid."""
    return case.meta is not None and case.meta.is_negative_at(location)


def real_names(path: str, sample_data: SampleData) -> dict[str, str]:
    """Return the value at a path of names, if it exists."""
    if path == "/ai-conversations/open":
        return {"namespace": "support", "sessionId": sample_data.ids["talk"]}
    return {"name": f"{sample_data.word} Ann"} if path.endswith("/by-name") else {}


def real_fields(value: Any, sample_data: SampleData) -> Any:
    """Replace ids at any depth by existing ones."""
    if isinstance(value, list):
        return [real_fields(each, sample_data) for each in value]
    if not isinstance(value, dict):
        return value
    created = {name: real_fields(each, sample_data) for name, each in value.items()}
    for name, kind in _FIELDS.items():
        if isinstance(created.get(name), str):
            created[name] = sample_data.ids[kind]
        elif isinstance(created.get(name), list) and all(isinstance(each, str) for each in created[name]):
            created[name] = [sample_data.ids[kind] for _ in created[name]]
    return created
