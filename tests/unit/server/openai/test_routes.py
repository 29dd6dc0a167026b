"""The routes under `/v1`, called with a plain HTTP client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tellback import Tellback
from tellback.errors import ProviderOverloadedError
from tellback.server import ServerSettings, create_app
from tellback.server.openai.errors import OpenAIErrorMiddleware
from tellback.testing import ScriptedModel, calls, raises, says
from tellback.types import ToolCall
from tests.support.http_server import app_client


@asynccontextmanager
async def open_client(
    *script: Any, **settings: Any
) -> AsyncIterator[tuple[Tellback, httpx2.AsyncClient, ScriptedModel]]:
    with ScriptedModel(script) as model:
        async with Tellback(":memory:", model=model) as tb:
            app = create_app(tb, ServerSettings(**{"open": True, **settings}), opens=False)
            async with app_client(OpenAIErrorMiddleware(app)) as client:
                yield tb, client, model


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    chat_messages = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    return {"model": "tellback", "messages": chat_messages, **fields}


async def ask(client: httpx2.AsyncClient, *messages: Any, headers: Any = None, **fields: Any) -> httpx2.Response:
    return await client.post("/v1/chat/completions", json=body(*messages, **fields), headers=headers)


def error_in(response: httpx2.Response) -> tuple[int, str, str | None, str | None]:
    assert response.headers["content-type"] == "application/json"
    found = response.json()
    assert set(found) == {"error"}
    error = found["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return response.status_code, error["type"], error["param"], error["code"]


async def test_an_open_server_acts_for_the_local_user() -> None:
    async with open_client(says("Hello!"), says("Hi Maya!")) as (tb, client, _):
        response = await ask(client, "Hi")
        assert response.json()["choices"][0]["message"] == {"role": "assistant", "content": "Hello!", "refusal": None}
        await ask(client, "Hi", user="maya")
        [conversation] = await tb.user("local").conversations.list()
        assert response.headers["X-Tellback-Conversation"] == conversation.id
        assert len(await tb.user("maya").conversations.list()) == 1


async def test_stream_frames_have_openais_format() -> None:
    async with open_client(says("Hello\nthere", chunks=5)) as (_, client, _model):
        response = await ask(client, "Hi", stream=True)
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    assert frames.pop() == "data: [DONE]"
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == "Hello\nthere"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all("usage" not in chunk for chunk in chunks)


async def test_requests_of_common_frameworks_are_accepted() -> None:
    call = {"id": "c1", "type": "function", "index": 0, "function": {"name": "look", "arguments": ""}}
    async with open_client(says("Done.")) as (_, client, model):
        response = await ask(
            client,
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "content": [{"type": "text", "text": "Look."}], "name": None},
            {"role": "assistant", "content": "", "tool_calls": [call], "function_call": None, "refusal": None},
            {
                "role": "tool",
                "content": [{"type": "text", "text": "It is there."}],
                "tool_call_id": "c1",
                "name": "look",
            },
            n=1,
            stream=False,
            stop=None,
            temperature=None,
            max_tokens=None,
            parallel_tool_calls=None,
            function_call=None,
            response_format={"type": "text"},
            made_up_by_a_framework={"a": 1},
        )
        assert response.status_code == 200
        [request] = model.requests
        assert [message.role for message in request.messages] == ["user", "assistant", "tool"]
        assert request.config == {}


async def test_response_format_reaches_the_model() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    response_format = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    async with open_client(says('{"city":"Rome"}')) as (_, client, model):
        response = await ask(client, "Where?", response_format=response_format)
        assert response.json()["choices"][0]["message"]["content"] == '{"city":"Rome"}'
        assert model.requests[0].output_schema == schema
        assert model.requests[0].config == {}


async def test_the_name_of_a_message_becomes_the_sender() -> None:
    async with open_client(says("Hi!")) as (tb, client, _):
        await ask(client, {"role": "user", "content": "Hi", "name": "Maya"})
        [conversation] = await tb.user("local").conversations.list()
        assert conversation.metadata == {"speakers": {"user": "Maya"}}


async def test_a_turn_continues_the_conversation_of_the_header() -> None:
    async with open_client(says("one"), says("two")) as (tb, client, model):
        conversations = tb.user("local").conversations
        conversation = await conversations.create("support")
        headers = {"X-Tellback-Conversation": conversation.id}
        for text in ("a", "b"):
            response = await ask(client, text, headers=headers)
            assert response.headers["X-Tellback-Conversation"] == conversation.id
        assert [message.text for message in await conversations.messages(conversation.id)] == ["a", "one", "b", "two"]
        assert len(model.requests[1].messages) == 1, "the client keeps the history"
        await conversations.close(conversation.id)
        closed = await ask(client, "c", headers=headers)
        assert error_in(closed) == (409, "invalid_request_error", None, "conversation_closed")
        assert closed.headers["x-should-retry"] == "false"


async def test_continuing_after_an_answer_logs_only_new_messages() -> None:
    async with open_client(says("two three")) as (tb, client, _):
        await ask(client, "Count.", {"role": "assistant", "content": "one"})
        [conversation] = await tb.user("local").conversations.list()
        log = await tb.user("local").conversations.messages(conversation.id)
        assert [(message.role, message.text) for message in log] == [("assistant", "two three")]


async def test_tool_results_and_texts_in_one_request_are_logged_in_order() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    async with open_client(calls(ToolCall("c1", "look")), says("Fine.")) as (tb, client, _):
        first = (await ask(client, "Look.", tools=[tool])).json()["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": "c1", "content": "there"}
        await ask(client, "Look.", first, result, "And now?", tools=[tool])
        [conversation] = await tb.user("local").conversations.list()
        log = await tb.user("local").conversations.messages(conversation.id)
    assert [(message.role, message.text) for message in log] == [
        ("user", "Look."),
        ("assistant", ""),
        ("tool", "there"),
        ("user", "And now?"),
        ("assistant", "Fine."),
    ]
    assert [message.turn_id == log[0].turn_id for message in log] == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [
        (b"{", {}, (400, "invalid_request_error", None, "invalid_json")),
        (b"{}", {"content-type": "text/plain"}, (400, "invalid_request_error", None, "media_type")),
        (b"{}", {}, (400, "invalid_request_error", "model", "invalid_value")),
        (json.dumps(body()), {}, (400, "invalid_request_error", "messages", "invalid_value")),
        (json.dumps(body("Hi", model="x")), {}, (404, "invalid_request_error", "model", "model_not_found")),
        (json.dumps(body("Hi", user="*")), {}, (400, "invalid_request_error", None, "invalid_value")),
        (json.dumps(body("Hi", max_tokens=0)), {}, (400, "invalid_request_error", "max_tokens", "invalid_value")),
        (json.dumps(body("x" * 300)), {}, (413, "invalid_request_error", None, "too_large")),
        (
            json.dumps(body("Hi")),
            {"X-Tellback-Session": "%FF"},
            (400, "invalid_request_error", None, "invalid_value"),
        ),
        (
            json.dumps(body("Hi")),
            {"X-Tellback-Conversation": "conv_1"},
            (404, "invalid_request_error", None, "not_found"),
        ),
        (
            json.dumps(body("Hi")),
            {"X-Tellback-Namespace": "x" * 300},
            (400, "invalid_request_error", None, "invalid_value"),
        ),
    ],
)
async def test_errors_have_openais_format(content: Any, headers: dict[str, str], expected: Any) -> None:
    async with open_client(text_length=250) as (tb, client, _):
        sent = {"content-type": "application/json", **headers}
        response = await client.post("/v1/chat/completions", content=content, headers=sent)
        assert error_in(response) == expected
        assert await tb.user("local").conversations.list() == [], "an invalid request creates no conversation"


async def test_errors_outside_of_routes_have_openais_format() -> None:
    async with open_client(open=False) as (_, client, _model):
        assert error_in(await client.get("/v1/models")) == (401, "authentication_error", None, "invalid_api_key")
        assert (await client.get("/ai-conversations")).headers["content-type"] == "application/problem+json"
    async with open_client() as (_, client, _model):
        assert error_in(await client.get("/v1/nothing"))[0] == 404
        assert error_in(await client.get("/v1/chat/completions"))[0] == 405


@pytest.mark.parametrize("prefix", ["", "/memory"])
async def test_unexpected_errors_have_openais_format(prefix: str) -> None:
    async with Tellback(":memory:", model=ScriptedModel([raises(ValueError("secret"))])) as tb:
        app = create_app(tb, ServerSettings(open=True), opens=False)
        mounted = Starlette(routes=[Mount(prefix, app)])
        async with app_client(mounted) as client:
            response = await client.post(f"{prefix}/v1/chat/completions", json=body("Hi"))
            assert error_in(response) == (500, "server_error", None, "failed")
            assert "secret" not in response.text
            assert response.headers["X-Request-Id"] in response.json()["error"]["message"]
            missing = await client.get(f"{prefix}/v1/models/nobody")
            assert error_in(missing)[3] == "model_not_found"
            unlike = await client.get(f"{prefix}/ai-conversations/conv_x", headers={"X-Tellback-User": "maya"})
            assert unlike.json()["code"] == "not-found"


@pytest.mark.parametrize("streams", [False, True])
async def test_a_stopping_server_calls_no_model(streams: bool) -> None:
    with ScriptedModel([]) as model:
        async with Tellback(":memory:", model=model) as tb:
            app = create_app(tb, ServerSettings(open=True), opens=False)
            app.state.stopping.set()
            async with app_client(app) as client:
                response = await ask(client, "Hi", stream=streams)
            assert error_in(response) == (503, "server_error", None, "stopping")
            assert response.headers["Retry-After"]
            assert await tb.user("local").conversations.list() == []


async def test_temporary_provider_errors_are_retryable() -> None:
    async with open_client(raises(ProviderOverloadedError("busy", retryable=True)), says("Hi!")) as (_, client, _model):
        response = await ask(client, "Hi", stream=True)
        assert error_in(response) == (503, "server_error", None, "provider_overloaded")
        assert "x-should-retry" not in response.headers
        assert (await ask(client, "Hi")).status_code == 200


async def test_a_failed_stream_ends_with_the_error() -> None:
    failing = raises(RuntimeError("secret"), after="Hel")
    async with open_client(failing) as (tb, client, _):
        response = await ask(client, "Hi", stream=True)
        *_, last = [line for line in response.text.split("\n\n") if line]
        error = json.loads(last.removeprefix("data: "))["error"]
        assert error["type"] == "server_error"
        assert "secret" not in response.text
        [conversation] = await tb.user("local").conversations.list()
        assert [each.role for each in await tb.user("local").conversations.messages(conversation.id)] == ["user"]


async def test_a_server_without_a_model_answers_from_memory() -> None:
    async with (
        Tellback(":memory:") as tb,
        app_client(create_app(tb, ServerSettings(open=True), opens=False)) as client,
    ):
        assert [each["id"] for each in (await client.get("/v1/models")).json()["data"]] == ["tellback", "auto"]
        response = await ask(client, "Hi")
    assert "No model is set up" in response.json()["choices"][0]["message"]["content"]
    assert response.json()["model"] == "offline"
