"""The server over streamable HTTP with the official client, in both generations of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tellback import Tellback
from tellback.errors import ConfigurationError
from tellback.mcp import http_app
from tellback.user import User
from tests.integration.mcp.support import connect, run_http_server
from tests.unit.mcp.support import call_ok, call_refused, open_app

MODES = pytest.mark.parametrize("mode", ["auto", "legacy"], ids=["newest", "with handshake"])
HEADERS = {"Accept": "application/json, text/event-stream", "Authorization": "Bearer maya"}

RECALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "recall", "arguments": {"query": "vegetarian"}},
}


def initialize(**kwargs: Any) -> dict[str, Any]:
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params, **kwargs}


@MODES
async def test_every_tool_works(mode: str) -> None:
    async with open_app() as tb, run_http_server(tb) as (address, _), connect(address, "maya", mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["recall", "timeline", "entities", "conversations", "remember", "forget"]
        memory = (await call_ok(client, "remember", text="Maya is vegetarian."))["memory"]
        assert [each["id"] for each in (await call_ok(client, "recall", query="vegetarian"))["memories"]] == [
            memory["id"]
        ]
        assert (await call_ok(client, "timeline"))["memories"][0]["standing"] == "current"
        assert (await call_ok(client, "entities"))["entities"] == []
        assert (await call_ok(client, "conversations"))["conversations"] == []
        assert (await call_ok(client, "forget", atom_id=memory["id"]))["status"] == "forgotten"


@MODES
async def test_each_request_uses_the_memory_of_its_own_user(mode: str) -> None:
    async with (
        open_app() as tb,
        run_http_server(tb) as (address, _),
        connect(address, "maya", mode) as mayas_session,
        connect(address, "tom", mode) as toms_session,
        connect(address, "", mode) as anonymous_session,
    ):
        await asyncio.gather(
            *(call_ok(mayas_session, "remember", text=f"Maya's secret number is {n}.") for n in range(5)),
            *(call_ok(toms_session, "remember", text=f"Tom's secret number is {n}.") for n in range(5)),
        )
        for client, name in ((mayas_session, "Maya"), (toms_session, "Tom")):
            found = (await call_ok(client, "recall", query="secret number", limit=20))["memories"]
            assert len(found) == 5
            assert all(each["text"].startswith(name) for each in found)
        assert await call_refused(anonymous_session, "recall", query="secret number") == "Authentication required."


@MODES
async def test_any_process_can_answer_any_request(mode: str) -> None:
    async with open_app() as tb, run_http_server(tb) as (first_address, _), run_http_server(tb) as (second_address, _):
        async with connect(first_address, "maya", mode) as client:
            await call_ok(client, "remember", text="Maya is vegetarian.")
        async with connect(second_address, "maya", mode) as client:
            assert (await call_ok(client, "recall", query="vegetarian"))["memories"]
        async with httpx2.AsyncClient(headers=HEADERS) as http:
            answer = await http.post(first_address, json=initialize())
            assert answer.status_code == 200
            assert "mcp-session-id" not in answer.headers
            answer = await http.post(second_address, json=RECALL)  # without a handshake with this server
            assert "Maya is vegetarian." in answer.text


@MODES
async def test_a_read_only_server_rejects_writes(mode: str) -> None:
    async with (
        open_app() as tb,
        run_http_server(tb, read_only=True) as (address, _),
        connect(address, "maya", mode) as client,
    ):
        assert "remember" not in [tool.name for tool in (await client.list_tools()).tools]
        with pytest.raises(Exception, match="There is no tool 'remember'"):
            await client.call_tool("remember", {"text": "Maya is vegetarian."})


@MODES
async def test_a_cancelled_call_stops_on_the_server(mode: str) -> None:
    async with open_app() as tb:
        slow = SlowUserLookup(tb)
        async with run_http_server(tb, slow.user_of) as (address, _), connect(address, "maya", mode) as client:
            async with asyncio.timeout(20):
                call = asyncio.create_task(client.call_tool("recall", {"query": "food"}))
                await slow.started.wait()
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                if mode == "auto":  # the older protocol cancels with a message, which requires a session
                    await slow.finished.wait()
            slow.is_slow = False
            assert not (await client.call_tool("recall", {"query": "food"})).is_error


@pytest.mark.parametrize("headers", [{}, {"MCP-Protocol-Version": "2025-06-18"}])
async def test_a_broken_connection_stops_its_call(headers: dict[str, str]) -> None:
    async with open_app() as tb:
        slow = SlowUserLookup(tb)
        async with (
            run_http_server(tb, slow.user_of) as (address, _),
            httpx2.AsyncClient(headers=HEADERS | headers, timeout=20) as http,
            asyncio.timeout(20),
        ):
            call = asyncio.create_task(http.post(address, json=RECALL))
            await slow.started.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await slow.finished.wait()


async def test_stopping_the_server_cancels_running_calls() -> None:
    async with open_app() as tb, httpx2.AsyncClient(headers=HEADERS, timeout=20) as http:
        slow = SlowUserLookup(tb)
        async with run_http_server(tb, slow.user_of) as (address, _), asyncio.timeout(20):
            call = asyncio.create_task(http.post(address, json=RECALL))
            await slow.started.wait()
        assert slow.finished.is_set()
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_leaving_the_running_context_cancels_the_calls_of_the_application(version: str) -> None:
    async with open_app() as tb:
        slow = SlowUserLookup(tb)
        app = http_app(slow.user_of, allowed_hosts=None)
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in META.items()}
        body = {**RECALL, "params": {**RECALL["params"], "_meta": meta if version > "2026" else {}}}
        headers = {**HEADERS, "MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": "recall"}
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://any", headers=headers) as http:
            async with app.running(), asyncio.timeout(20):
                call = asyncio.create_task(http.post("/mcp", json=body))
                await slow.started.wait()
            assert slow.finished.is_set()
            await asyncio.gather(call, return_exceptions=True)


META: dict[str, Any] = {
    "protocolVersion": "2026-07-28",
    "clientInfo": {"name": "test", "version": "1"},
    "clientCapabilities": {},
}


class SlowUserLookup:
    """Takes a long time to return a user, and records its start and end."""

    def __init__(self, tb: Tellback) -> None:
        self._tb = tb
        self.is_slow = True
        self.started, self.finished = asyncio.Event(), asyncio.Event()

    async def user_of(self, scope: object) -> User:
        if self.is_slow:
            self.started.set()
            try:
                await asyncio.sleep(25)
            finally:
                self.finished.set()
        return self._tb.user("maya")


async def test_malformed_requests_are_rejected_and_the_server_keeps_running() -> None:
    async with open_app() as tb, run_http_server(tb, max_body_bytes=10_000) as (address, _):
        async with httpx2.AsyncClient(headers=HEADERS, timeout=20) as http:
            json = {"Content-Type": "application/json"}
            assert (await http.get(address)).status_code == 405
            assert (await http.delete(address)).headers["allow"] == "POST"
            assert (await http.post(address, content=b"{", headers=json)).status_code == 400
            assert (await http.post(address, content=b"[" * 9_000, headers=json)).status_code == 400
            assert (await http.post(address, content=b"[]", headers=json)).status_code == 400
            assert (await http.post(address, content=b"hello")).status_code == 400
            assert (await http.post(address, content=b"x" * 10_001, headers=json)).status_code == 413
            assert (await http.post(address, json=initialize(), headers={"Accept": "text/html"})).status_code == 406
            newest = {**json, "MCP-Protocol-Version": "2026-07-28"}
            for body in (b"{", b"[" * 9_000, b"[]", b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}'):
                assert (await http.post(address, content=body, headers=newest)).status_code == 400
            future = {**json, "MCP-Protocol-Version": "2999-01-01"}
            assert (await http.post(address, json=initialize(), headers=future)).status_code == 400
        async with connect(address, "maya") as client:
            assert "query" in await call_refused(client, "recall", query="x" * 3_000)
            await call_ok(client, "remember", text="Maya is vegetarian.")


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_other_origins_and_hosts_are_rejected(version: str) -> None:
    async with (
        open_app() as tb,
        run_http_server(tb, allowed_origins=["https://app.example:*", "https://ok.example"]) as (address, _),
    ):
        headers = {**HEADERS, "MCP-Protocol-Version": version}
        async with httpx2.AsyncClient(headers=headers, timeout=20) as http:
            for origin, allowed in ORIGINS:
                answer = await http.post(address, json=initialize(), headers={"Origin": origin})
                assert (answer.status_code != 403) is allowed, origin
            answer = await http.post(address, json=initialize(), headers={"Host": "evil.example"})
            assert answer.status_code == 421


ORIGINS = [
    ("https://ok.example", True),
    ("https://app.example:8443", True),
    ("https://ok.example.evil.example", False),
    ("https://app.example.evil.example:1", False),
    ("http://127.0.0.1", False),
    ("null", False),
]


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_origins_are_checked_even_if_any_host_is_allowed(version: str) -> None:
    options: dict[str, Any] = {
        "allowed_hosts": None,
        "allowed_origins": ["https://app.example:*", "https://ok.example"],
    }
    async with open_app() as tb, run_http_server(tb, **options) as (address, _):
        headers = {**HEADERS, "MCP-Protocol-Version": version, "Host": "memory.example"}
        async with httpx2.AsyncClient(headers=headers, timeout=20) as http:
            assert (await http.post(address, json=initialize())).status_code not in (403, 421)
            for origin, allowed in ORIGINS:
                answer = await http.post(address, json=initialize(), headers={"Origin": origin})
                assert (answer.status_code != 403) is allowed, origin


async def test_an_application_answers_only_while_running_and_can_run_again() -> None:
    async with open_app() as tb:
        app = http_app(lambda scope: tb.user("maya"), allowed_hosts=None)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://any", headers=HEADERS) as http:
            assert (await http.post("/mcp", json=initialize())).status_code == 503
            for _ in range(2):
                async with app.running():
                    assert (await http.post("/mcp", json=initialize())).status_code == 200
                    with pytest.raises(ConfigurationError, match="already running"):
                        async with app.running():
                            pass
                    assert (await http.post("/mcp", json=initialize())).status_code == 200
            assert (await http.post("/mcp", json=initialize())).status_code == 503


def test_allowed_hosts_must_be_a_list() -> None:
    with pytest.raises(ConfigurationError, match="allowed_hosts must be a list"):
        http_app(lambda scope: None, allowed_hosts="memory.example")  # type: ignore[arg-type, return-value]
