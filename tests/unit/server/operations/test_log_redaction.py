"""No log line at any level contains a user's text."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.errors import ConfigurationError, InvalidArgumentError, StoreUnavailableError
from tellback.server import ServerSettings, create_app
from tellback.server.operations.logs import JsonFormatter, RedactingFilter, TextFormatter, format_exception
from tellback.testing import FunctionModel, says
from tests.support.http_server import app_client
from tests.unit.server.middleware.test_observability import Lines, capture_lines

WORDS = "ilivednearthelighthouse"


async def _fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError(f"the model did not like {WORDS}")


@pytest.fixture
async def app() -> AsyncIterator[FastAPI]:
    async with Tellback(":memory:", model=FunctionModel(lambda *_: says(f"You said {WORDS}."))) as tb:
        yield create_app(tb, ServerSettings(open=True, rate_limit=None), opens=False)


def _bodies(schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    """Bodies that are invalid in many ways, and one that may be valid; all their texts contain the marker."""
    return [
        {WORDS: WORDS},
        [WORDS],
        WORDS,
        _fill_schema(schema, root),
        {name: {WORDS: [WORDS]} for name in _resolve_schema(schema, root).get("properties", {})},
    ]


def _resolve_schema(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = root["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _fill_schema(schema: dict[str, Any], root: dict[str, Any], depth: int = 0) -> Any:
    schema = _resolve_schema(schema, root)
    if "const" in schema or "enum" in schema:
        return schema.get("const") or schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return _fill_schema(schema[choice][0], root, depth)
    kind = schema.get("type")
    if kind == "object" and depth < 5:
        required = schema.get("required", schema.get("properties", {}))
        return {name: _fill_schema(schema["properties"][name], root, depth + 1) for name in required}
    if kind == "array":
        return [_fill_schema(schema.get("items", {}), root, depth + 1)]
    numbers: dict[Any, Any] = {"integer": 3, "number": 0.5, "boolean": False, "object": {}}
    return numbers.get(kind, WORDS)


def _requests(described: dict[str, Any]) -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    """Method, path, body and query of many requests to all routes that end."""
    for path, methods in described["paths"].items():
        if path in ("/ai-events", "/metrics") or path.endswith("/events"):
            continue
        for method, route in methods.items():
            parameters = [each for each in route.get("parameters", ()) if "in" in each]
            query = {each["name"]: WORDS for each in parameters if each["in"] == "query"}
            content = route.get("requestBody", {}).get("content", {}).get("application/json")
            for body in _bodies(content["schema"], described) if content else [None]:
                for params in ({}, query):
                    yield method.upper(), re.sub(r"{\w+}", WORDS, path), body, params
    for body in ({"jsonrpc": "2.0", "id": 1, "method": WORDS, "params": {WORDS: WORDS}}, [WORDS], _CALL):
        yield "POST", "/mcp", body, {}


_CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": WORDS, "arguments": {WORDS: WORDS}}}


@pytest.mark.timeout(120)
async def test_no_route_logs_request_content(app: FastAPI) -> None:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "X-Tellback-Session": WORDS,
    }
    with capture_lines() as lines:
        async with app.router.lifespan_context(app), app_client(app) as client:
            for method, path, body, query in _requests(app.openapi()):
                sent = None if body is None else json.dumps(body)
                async with asyncio.timeout(20):
                    await client.request(method, path, content=sent, params=query, headers=headers)
    assert len(lines.of_requests()) > 100
    assert {line["route"] for line in lines.of_requests() if line["method"] == "POST"} >= {
        "/mcp",
        "/v1/chat/completions",
    }
    assert [line for line in lines.lines if WORDS in line] == []


async def test_log_lines_of_turns_contain_no_message_text(app: FastAPI) -> None:
    tb: Tellback = app.state.server_context.tb
    with capture_lines() as lines:
        async with app_client(app, user="maya") as client:
            conversation = (await client.post("/ai-conversations", json={"namespace": "chat"})).json()
            path = f"/ai-conversations/{conversation['id']}"
            message_response = await client.post(f"{path}/user-messages", json={"content": WORDS})
            turn_response = await client.post(f"{path}/run-turn", json={"userText": WORDS})
            assert (message_response.status_code, turn_response.status_code) == (201, 200)
            await client.post("/ai-conversations/chat", json={"text": WORDS, "stream": True})
            tb._runtime.model = FunctionModel(_fail)
            failed = await client.post(f"{path}/run-turn", json={"userText": WORDS})
            assert failed.status_code == 500
            await client.post("/ai-conversations/chat", json={"text": WORDS, "stream": True})
            await client.post(f"{path}/rolling-summary")
            await client.post(f"{path}/close")
        await tb.jobs.drain()
    assert len(lines.of_requests()) == 8
    assert [line for line in lines.lines if WORDS in line] == []


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.text(min_size=12, alphabet=st.characters(min_codepoint=97, max_codepoint=122)))
def test_exceptions_are_logged_without_their_text(words: str) -> None:
    def failed() -> BaseException:
        try:
            try:
                raise KeyError(words)
            except KeyError as error:
                raise InvalidArgumentError(words) from error
        except InvalidArgumentError as error:
            return ExceptionGroup(words, [error, ValueError(words)])

    trace = format_exception(failed())
    assert words not in trace.replace("told_exception", "")
    assert trace.splitlines()[-1] == "ExceptionGroup"


def test_safe_errors_are_logged_with_their_message() -> None:
    assert format_exception(ConfigurationError("no model")) == "ConfigurationError: no model"
    assert format_exception(StoreUnavailableError("no server at db")).endswith("no server at db")
    assert format_exception(ConnectionRefusedError(111, "refused")) == "ConnectionRefusedError: errno 111"


def _line(name: str, level: int, message: object, *args: object, error: BaseException | None = None) -> str | None:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord(name, level, "/lib/thing.py", 42, message, args, info)
    return JsonFormatter().format(record) if RedactingFilter().filter(record) else None


def test_other_libraries_records_are_reduced_to_their_origin() -> None:
    assert _line("openai._base_client", logging.DEBUG, "Request options: %s", WORDS) is None
    line = _line("asyncio", logging.ERROR, f"Task failed: ValueError({WORDS})", error=ValueError(WORDS))
    assert line is not None
    assert WORDS not in line
    assert json.loads(line)["message"] == "error of asyncio, in thing line 42"
    assert json.loads(line)["exception"] == "ValueError"


def test_exceptions_in_our_own_records_are_reduced_to_their_type() -> None:
    line = _line("tellback.skills", logging.WARNING, "skill %r: %s", "maths", ValueError(WORDS))
    assert line is not None
    assert json.loads(line)["message"] == "skill 'maths': ValueError"


def test_output_of_tool_programs_is_not_logged() -> None:
    assert _line("tellback.tools.mcp", logging.INFO, "%s: %s", "files", WORDS) is None


def test_warnings_are_reduced_to_their_location() -> None:
    lines = Lines()
    logger = logging.getLogger("py.warnings")
    logger.addHandler(lines)
    try:
        logging.captureWarnings(True)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.showwarning(UserWarning(WORDS), UserWarning, "/lib/thing.py", 7)
    finally:
        logging.captureWarnings(False)
        logger.removeHandler(lines)
    assert [json.loads(line)["message"] for line in lines.lines] == ["/lib/thing.py:7: UserWarning"]


def test_text_records_stay_on_one_line() -> None:
    record = logging.LogRecord("tellback.x", logging.INFO, "x.py", 1, "job %s", ("a\nb\x1b[31m",), None)
    assert "\n" not in TextFormatter().format(record)
    assert "\x1b" not in TextFormatter().format(record)


def test_records_with_lone_surrogates_are_logged() -> None:
    line = _line("tellback.x", logging.INFO, "agent %s", "\ud83d")
    assert line is not None
    assert line.isascii()
    assert json.loads(line)["message"] == "agent \ud83d"
