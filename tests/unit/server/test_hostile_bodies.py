"""Arbitrary bodies and queries are reported as client errors and never cause a server error."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tests.support.http_server import app_client

pytestmark = pytest.mark.slow

PARTS = ("/ai-memory", "/ai-working-context", "/ai-conversations")
SLOW = ("/extractions/wait", "/run-turn", "/chat", "/events")
"""Operations that wait or call a model."""

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 10**30, 1e308, -1e308, 5e-324, math.inf]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["*", "\x00", "x" * 600, "2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"]
    ),
)
anything: st.SearchStrategy[Any] = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


JSON = {"Content-Type": "application/json"}


def encode_body(body: Any) -> bytes:
    """Encode a body as JSON, including numbers out of range."""
    return json.dumps(body).replace("Infinity", "1e999").encode()


class RunningServer:
    """A server with sample data, and its OpenAPI document."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.tb = Tellback(":memory:", embedder=None, worker=False)
        runner.run(self.tb.open())
        app = create_app(self.tb, ServerSettings(open=True, rate_limit=None), opens=False)
        self.client = app_client(app, user="maya")
        self.described = app.openapi()
        self.ids = runner.run(self._create_resources())
        self.operations = [
            (method.upper(), path, operation)
            for path, methods in self.described["paths"].items()
            for method, operation in methods.items()
            if path.startswith(PARTS) and not path.endswith(SLOW)
        ]

    async def _create_resources(self) -> dict[str, str]:
        maya = self.tb.user("maya")
        space = await maya.memory.create_space()
        entity = await maya.memory.create_entity(space.id, "PERSON", "Ana")
        atom = await maya.memory.add_atom(space.id, "Ana likes tea.", entity_ids=[entity.id])
        conversation = await maya.conversations.create("chat")
        message = await maya.conversations.append_user_message(conversation.id, "Hello.")
        binding = await maya.memory.create_binding({"namespace": "chat"}, [space.id])
        run = await maya.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
        return {
            "spaces": space.id,
            "entities": entity.id,
            "atoms": atom.id,
            "ai-conversations": conversation.id,
            "messages": message.id,
            "bindings": binding.id,
            "jobs": str(run.id),
        }

    def fields(self, operation: dict[str, Any]) -> list[str]:
        """Return the field names of a body."""
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        references = [body, *body.get("anyOf", [])]
        names = [each["$ref"].rpartition("/")[2] for each in references if "$ref" in each]
        return [name for each in names for name in self.described["components"]["schemas"][each].get("properties", {})]

    def path(self, path: str) -> str:
        """Fill a path with existing ids."""
        parts = path.split("/")
        return "/".join(
            self.ids.get(parts[n - 1], "x") if part.startswith("{") else part for n, part in enumerate(parts)
        )

    def ask(self, method: str, path: str, query: dict[str, str], body: Any) -> httpx2.Response:
        options: dict[str, Any] = {} if body is None else {"content": encode_body(body), "headers": JSON}
        return self.runner.run(self.client.request(method, self.path(path), params=query, **options))


@pytest.fixture(scope="module")
def running_server() -> Iterator[RunningServer]:
    with asyncio.Runner() as runner:
        created = RunningServer(runner)
        yield created
        runner.run(created.client.aclose())
        runner.run(created.tb.close())


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_arbitrary_bodies_and_queries_never_cause_a_server_error(
    running_server: RunningServer, data: st.DataObject
) -> None:
    method, path, operation = data.draw(st.sampled_from(running_server.operations))
    names = running_server.fields(operation)
    real = st.sampled_from([*running_server.ids.values()])
    values = anything | real | st.lists(real, max_size=3)
    body = data.draw(st.dictionaries(st.sampled_from(names), values, max_size=len(names))) if names else None
    queries = [each["name"] for each in operation.get("parameters", ()) if each.get("in") == "query"]
    texts = leaves.filter(lambda each: each is not None).map(str)
    query = data.draw(st.dictionaries(st.sampled_from(queries), texts, max_size=3)) if queries else {}
    if method == "DELETE":
        path = path.replace("{id}", "unknown").replace("{space_id}", "unknown")
    answer = running_server.ask(method, path, query, body)
    assert answer.status_code < 500, f"{method} {path} {query} {body!r:.500}: {answer.text[:500]}"


def test_every_operation_has_a_name_a_description_and_error_responses(running_server: RunningServer) -> None:
    names = [operation["operationId"] for _, _, operation in running_server.operations]
    assert len(names) == len(set(names))
    for method, path, operation in running_server.operations:
        assert operation.get("description"), f"{method} {path}"
        assert {"401", "422", "429"} <= set(operation["responses"]), f"{method} {path}"
        if "{" in path:
            assert "404" in operation["responses"], f"{method} {path}"


async def test_numbers_out_of_range_are_rejected() -> None:
    async with Tellback(":memory:", embedder=None, worker=False) as tb:
        app = create_app(tb, ServerSettings(open=True, rate_limit=None), opens=False)
        async with app_client(app, user="maya") as client:
            conversation = (await client.post("/ai-conversations", json={"namespace": "chat"})).json()["id"]
            call = {"type": "tool_use", "id": "c1", "name": "pay", "arguments": {"amount": math.inf}}
            tools = [{"name": "pay", "parameters": {"maxLength": math.inf}}]
            function = {"type": "function", "function": tools[0]}
            for path, body, status in (
                ("assistant-turns", {"content": "Hi", "usage": {"costUsd": math.inf}}, 422),
                ("assistant-turns", {"content": [call]}, 422),
                ("run-turn", {"userText": "Hi", "tools": tools}, 422),
                (
                    "/v1",
                    {"model": "tellback", "messages": [{"role": "user", "content": "Hi"}], "tools": [function]},
                    400,
                ),
            ):
                url = "/v1/chat/completions" if path == "/v1" else f"/ai-conversations/{conversation}/{path}"
                answer = await client.post(url, content=encode_body(body), headers=JSON)
                assert (answer.status_code, "too large for a floating-point number" in answer.text) == (status, True), (
                    answer.text
                )


async def test_a_body_with_too_many_values_is_rejected_quickly() -> None:
    async with Tellback(":memory:", embedder=None, worker=False) as tb:
        app = create_app(tb, ServerSettings(open=True, rate_limit=None), opens=False)
        async with app_client(app, user="maya") as client:
            conversation = (await client.post("/ai-conversations", json={"namespace": "chat"})).json()["id"]
            messages_path = f"/ai-conversations/{conversation}/user-messages"
            block = {"type": "text", "text": "x"}
            many: dict[str, Any] = {f"k{number}": 1 for number in range(40_000)}
            for path, body, status in (
                (messages_path, {"content": [block] * 20_000}, 413),
                (messages_path, {"content": [block] * 1_001}, 422),
                (messages_path, {"content": [block] * 1_000}, 201),
                ("/ai-conversations", many, 413),
                ("/ai-conversations", {"namespace": "chat", "metadata": {"a": [[0] * 200] * 200}}, 413),
                ("/v1/chat/completions", {"model": "tellback", "messages": [{"role": "user"}] * 20_000}, 413),
                ("/v1/chat/completions", {"model": "tellback", "messages": [{"role": "user"}] * 2_001}, 400),
                (
                    "/v1/chat/completions",
                    {"model": "tellback", "messages": [{"role": "user", "content": [block] * 1_001}]},
                    400,
                ),
            ):
                answer = await client.post(path, json=body)
                assert answer.status_code == status, f"{path} {answer.text[:300]}"
                assert len(answer.content) < 200_000


async def test_a_thousand_messages_with_all_fields_can_be_imported() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3, "costUsd": 0.1, "latencyMs": 4, "cachedTokens": 0}
    usage_fields = {"cacheWriteTokens": 0, "reasoningTokens": 0, "provider": "anthropic", "model": "m"}
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi"}],
        "visibility": "user",
        "createdAt": "2026-03-01T09:00:00Z",
        "stopReason": "end_turn",
        "model": "m",
        "provider": "anthropic",
        "usage": {**usage, **usage_fields},
        "traceId": "t",
        "idempotencyKey": None,
    }
    async with Tellback(":memory:", embedder=None, worker=False) as tb:
        app = create_app(tb, ServerSettings(open=True, rate_limit=None), opens=False)
        async with app_client(app, user="maya") as client:
            conversation = (await client.post("/ai-conversations", json={"namespace": "chat"})).json()["id"]
            answer = await client.post(
                f"/ai-conversations/{conversation}/messages", json={"messages": [message] * 1_000}
            )
            assert answer.status_code == 201, answer.text[:300]
