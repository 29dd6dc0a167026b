"""The OpenAPI document is complete: all operations are described, and all examples are valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.server.middleware.auth import PUBLIC_PATHS
from tests.support.http_server import app_client
from tests.support.sse import parse_frame

Operation = tuple[str, str, dict[str, Any]]

APP = create_app(Tellback(":memory:"), ServerSettings(open=True))
DOCUMENT: dict[str, Any] = APP.openapi()
STREAMS = {"chat", "run_turn", "create_chat_completion", "invoke_agent", "respond", "follow_events", "follow_job"}
WRITING = {"post", "patch", "put", "delete"}


def operations() -> list[Operation]:
    return [(method, path, each) for path, found in DOCUMENT["paths"].items() for method, each in found.items()]


def _ids(each: Any) -> str:
    return str(each[2]["operationId"]) if isinstance(each, tuple) else ""


each_operation = pytest.mark.parametrize("operation", operations(), ids=_ids)


def resolve_reference(value: dict[str, Any]) -> dict[str, Any]:
    """Resolve a reference of the document."""
    while "$ref" in value:
        found: Any = DOCUMENT
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


def make_validator(schema: dict[str, Any]) -> Draft202012Validator:
    """Return a validator for a schema of the document."""
    resource = Resource.from_contents(DOCUMENT, default_specification=DRAFT202012)
    registry: Registry[Any] = Registry().with_resource("urn:document", resource)
    return Draft202012Validator(
        _absolute(schema), registry=registry, format_checker=Draft202012Validator.FORMAT_CHECKER
    )


def _absolute(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: f"urn:document{each}" if name == "$ref" else _absolute(each) for name, each in value.items()}
    return [_absolute(each) for each in value] if isinstance(value, list) else value


def iter_contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all request and response bodies with their media types."""
    yield from operation.get("requestBody", {}).get("content", {}).items()
    for answer in operation["responses"].values():
        yield from resolve_reference(answer).get("content", {}).items()


def test_operation_ids_are_unique_and_plain() -> None:
    names = [each["operationId"] for _, _, each in operations()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z_]+", name) for name in names)


def test_schema_names_are_plain() -> None:
    assert [
        name for name in DOCUMENT["components"]["schemas"] if not re.fullmatch(r"[A-Z][A-Za-z]+(_\w+_)?", name)
    ] == []


def test_descriptions_contain_no_doctests() -> None:
    assert ">>>" not in json.dumps(DOCUMENT)


def test_every_tag_is_described_and_used() -> None:
    described = [tag["name"] for tag in DOCUMENT["tags"]]
    assert all(tag["description"] for tag in DOCUMENT["tags"])
    used = {tag for _, _, each in operations() for tag in each["tags"]}
    assert used == set(described), "describe a new tag in TAGS of server/openapi.py"


def test_every_reference_resolves() -> None:
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT))):
        assert resolve_reference({"$ref": reference})


def test_every_schema_is_used() -> None:
    document_text = json.dumps(DOCUMENT)
    assert [
        name for name in DOCUMENT["components"]["schemas"] if f'"#/components/schemas/{name}"' not in document_text
    ] == []


@each_operation
def test_every_operation_has_a_summary_and_a_description(operation: Operation) -> None:
    _, _, found = operation
    assert found["summary"]
    assert found["description"]
    assert len(found["tags"]) == 1


@each_operation
def test_only_public_operations_need_no_credential(operation: Operation) -> None:
    _, path, found = operation
    security = found.get("security", DOCUMENT["security"])
    if path in PUBLIC_PATHS:
        assert security == [] or {} in security
    else:
        assert security == [{"credential": []}]
        assert {"401", "403", "429"} <= set(found["responses"])
    assert DOCUMENT["components"]["securitySchemes"]["credential"]["scheme"] == "bearer"


@each_operation
def test_problems_are_described_with_their_media_type(operation: Operation) -> None:
    _, path, found = operation
    problems = {status: resolve_reference(each) for status, each in found["responses"].items() if int(status) >= 400}
    media = "application/json" if path.startswith("/v1/") else "application/problem+json"
    for status, each in problems.items():
        assert list(each["content"]) == [media], status
        assert each["description"]
    if "{" in path:
        assert "404" in problems


@each_operation
def test_operations_document_their_request_and_response_headers(operation: Operation) -> None:
    method, path, found = operation
    parameters = {resolve_reference(each)["name"] for each in found["parameters"]}
    assert "X-Request-Id" in parameters
    if path not in PUBLIC_PATHS:
        assert "X-Tellback-User" in parameters
    if method in WRITING:
        assert ("Idempotency-Key" in parameters) is (found.get("x-idempotency") != "none")
    for each in found["responses"].values():
        assert "X-Request-Id" in resolve_reference(each)["headers"]
    for each in found["parameters"]:
        if resolve_reference(each)["in"] == "header":
            assert resolve_reference(each)["description"]


@each_operation
def test_every_body_has_a_schema(operation: Operation) -> None:
    _, _, found = operation
    for media, body in iter_contents(found):
        assert body.get("schema"), media
    success = next(each for status, each in found["responses"].items() if int(status) < 400)
    assert "content" in success or "204" in found["responses"]


@each_operation
def test_examples_match_their_schemas(operation: Operation) -> None:
    _, _, found = operation
    for media, body in iter_contents(found):
        if media == "application/json" and body["schema"] != {"type": "object"} and "ErrorOut" not in str(body):
            assert "example" in body
            make_validator(body["schema"]).validate(body["example"])
    for each in map(resolve_reference, found["parameters"]):
        for example in each["schema"].get("examples", ()):
            make_validator(each["schema"]).validate(example)


def test_field_examples_match_their_fields() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, described in schema.get("properties", {}).items():
            for example in described.get("examples", ()):
                problems = [error.message for error in make_validator(described).iter_errors(example)]
                assert problems == [], f"{name}.{field}"


def test_streaming_operations_are_declared_as_streams() -> None:
    declared = {
        each["operationId"]
        for _, _, each in operations()
        if "text/event-stream" in each["responses"].get("200", {}).get("content", {})
    }
    known = {each["operationId"] for _, _, each in operations()}
    assert declared == STREAMS & known


@pytest.mark.parametrize("name", sorted(STREAMS - {"create_chat_completion"}))
def test_stream_examples_match_their_event_schemas(name: str) -> None:
    [operation] = [each for _, _, each in operations() if each["operationId"] == name]
    media = operation["responses"]["200"]["content"]["text/event-stream"]
    events = [parse_frame(piece) for piece in media["example"].encode().removesuffix(b"\n\n").split(b"\n\n")]
    assert [each.event for each in events] == [event for event in media["x-events"] if event != "error"]
    for each in events:
        make_validator(media["x-events"][each.event]).validate(each.data)
    assert media["x-events"]["error"] == {"$ref": "#/components/schemas/Problem"}


def test_feed_events_and_session_events_have_different_schemas() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert "position" in schemas["ChangeWire"]["properties"]
    assert "creationUtc" in schemas["SessionEventWire"]["properties"]


async def test_the_document_is_cached_and_has_an_etag() -> None:
    async with app_client(APP) as client:
        first, second = await client.get("/openapi.json"), await client.get("/openapi.json")
        unchanged = await client.get("/openapi.json", headers={"If-None-Match": first.headers["ETag"]})
        page = await client.get("/docs")
    assert first.json() == json.loads(json.dumps(DOCUMENT))
    assert first.headers["ETag"] == second.headers["ETag"]
    assert unchanged.status_code == 304
    assert page.status_code == 200
    assert "/openapi.json" in page.text
    assert all(path in page.text for path in DOCUMENT["paths"])
    assert "//" not in page.text.replace("<!doctype", "")  # the page loads nothing
    assert APP.openapi() is APP.openapi()


async def test_the_document_contains_the_root_path_of_the_app() -> None:
    app = create_app(Tellback(":memory:"), ServerSettings(open=True))
    app.root_path = "/memory"
    async with app_client(app) as client:
        assert (await client.get("/memory/openapi.json")).json()["servers"] == [{"url": "/memory"}]
