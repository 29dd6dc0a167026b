"""Request ids, the access log, and responses to unexpected errors."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tellback import Tellback, telemetry
from tellback.server import ServerSettings, create_app
from tellback.server.middleware.observability import parse_request_id, parse_traceparent
from tellback.server.operations.logs import JsonFormatter, RedactingFilter
from tests.support.http_server import app_client, running_server

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Lines(logging.Handler):
    """The log lines of the server."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter())
        self.addFilter(RedactingFilter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    def of_requests(self) -> list[dict[str, object]]:
        records = [json.loads(line) for line in self.lines]
        return [each for each in records if each["logger"] == "tellback.server.access"]


@contextmanager
def capture_lines(level: int = logging.DEBUG) -> Iterator[Lines]:
    root, lines = logging.getLogger(), Lines()
    before = root.level
    root.addHandler(lines)
    root.setLevel(level)
    try:
        yield lines
    finally:
        root.removeHandler(lines)
        root.setLevel(before)


@pytest.fixture
def lines() -> Iterator[Lines]:
    with capture_lines() as found:
        yield found


@pytest.fixture
async def app() -> AsyncIterator[FastAPI]:
    async with Tellback(":memory:", worker=False) as tb:
        yield create_app(tb, ServerSettings(open=True), opens=False)


async def test_a_request_is_logged_once_with_its_route_instead_of_its_path(app: FastAPI, lines: Lines) -> None:
    async with app_client(app) as client:
        await client.get("/ai-conversations/conv_secret?cursor=hidden", headers={"X-Test": "header"})
    [line] = lines.of_requests()
    assert (line["method"], line["route"], line["status"]) == ("GET", "/ai-conversations/{id}", 404)
    assert line["credential"] == "open"
    assert not any(word in lines.lines[-1] for word in ("conv_secret", "hidden", "header"))


async def test_an_unknown_path_has_no_route_label(app: FastAPI, lines: Lines) -> None:
    async with app_client(app) as client:
        await client.get("/words-of-maya")
    [line] = lines.of_requests()
    assert line["route"] == "(none)"


async def test_probes_are_logged_only_if_they_fail(app: FastAPI) -> None:
    with capture_lines() as lines:
        logging.getLogger("tellback").setLevel(logging.INFO)
        try:
            async with app_client(app) as client:
                await client.get("/health/live")
                app.state.stopping.set()
                await client.get("/health/ready")
        finally:
            logging.getLogger("tellback").setLevel(logging.NOTSET)
    assert [line["status"] for line in lines.of_requests()] == [503]


async def test_a_callers_request_id_is_used_and_returned(app: FastAPI, lines: Lines) -> None:
    async with app_client(app) as client:
        answer = await client.get("/ai-conversations/x", headers={"X-Request-Id": "web-42", "traceparent": PARENT})
    assert answer.headers["x-request-id"] == "web-42"
    assert answer.json()["requestId"] == "web-42"
    [line] = lines.of_requests()
    assert (line["requestId"], line["traceId"]) == ("web-42", "4bf92f3577b34da6a3ce929d0e0e4736")


@given(st.text(max_size=300))
def test_request_ids_must_be_short_and_plain(request_id: str) -> None:
    found = parse_request_id(request_id)
    assert found in (None, request_id)
    if found is not None:
        assert 0 < len(found) <= 100
        assert all(each.isascii() and (each.isalnum() or each in "._:-") for each in found)


@given(st.one_of(st.text(max_size=80), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-x)?")))
def test_parse_traceparent_returns_a_valid_trace_or_none(header: str) -> None:
    found = parse_traceparent(header)
    if found is not None:
        assert int(found.trace_id, 16)
        assert int(found.span_id, 16)
        assert header.strip()[3:35] == found.trace_id


@pytest.mark.parametrize(
    "header", [None, "", "ff" + PARENT[2:], PARENT + "-more", PARENT.upper(), "00-" + "0" * 32 + PARENT[35:]]
)
def test_an_invalid_traceparent_is_ignored(header: str | None) -> None:
    assert parse_traceparent(header) is None


@pytest.mark.parametrize("request_id", ["", "two words", "x" * 101, "a\x7fb", "ä", "<b>"])
async def test_an_invalid_request_id_is_replaced(app: FastAPI, request_id: str) -> None:
    async with app_client(app) as client:
        answer = await client.get("/health/live", headers={b"X-Request-Id": request_id.encode()})
    assert answer.headers["x-request-id"].startswith("req_")


async def test_an_unexpected_error_is_a_500_with_the_request_id(app: FastAPI, lines: Lines) -> None:
    @app.get("/broken")
    async def broken() -> None:
        raise LookupError("words of maya")

    async with app_client(app) as client:
        answer = await client.get("/broken")
    assert answer.status_code == 500
    assert answer.json()["code"] == "failed"
    assert answer.json()["requestId"] == answer.headers["x-request-id"]
    assert "words of maya" not in answer.text
    [failure] = [json.loads(line) for line in lines.lines if "exception" in line]
    assert failure["requestId"] == answer.json()["requestId"]
    assert failure["exception"].endswith("LookupError")
    assert "test_observability.py" in failure["exception"]
    assert "words of maya" not in "".join(lines.lines)


async def test_an_error_after_the_response_began_closes_the_connection(app: FastAPI, lines: Lines) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"begun"
        raise LookupError("words of maya")

    @app.get("/breaks")
    async def breaks() -> StreamingResponse:
        return StreamingResponse(parts())

    async with running_server(app) as url, httpx2.AsyncClient(base_url=url) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/breaks")
        assert (await client.get("/health/live")).status_code == 200
    assert "words of maya" not in "".join(lines.lines)
    assert [line["status"] for line in lines.of_requests() if line["route"] == "/breaks"] == [500]


async def test_log_records_of_a_request_have_its_id(app: FastAPI, lines: Lines) -> None:
    @app.get("/tells")
    async def tells() -> None:
        logging.getLogger("tellback.test").info("told")

    async with app_client(app) as client:
        await client.get("/tells", headers={"X-Request-Id": "one"})
        await client.get("/tells", headers={"X-Request-Id": "two"})
    logging.getLogger("tellback.test").info("told")
    records = [json.loads(line) for line in lines.lines if '"told"' in line]
    assert [each.get("requestId") for each in records] == ["one", "two", None]


async def test_a_request_span_continues_the_callers_trace(app: FastAPI) -> None:
    seen, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    telemetry.configure(tracer_provider=provider)
    try:
        async with app_client(app) as client:
            await client.get("/ai-conversations/words", headers={"traceparent": PARENT})
    finally:
        telemetry.configure()
    [span] = seen.get_finished_spans()
    assert span.name == "GET /ai-conversations/{id}"
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == PARENT[3:35]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT[36:52]
    assert "words" not in str(span.to_json())
