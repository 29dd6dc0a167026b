"""An HTTP server that sends wrong answers, too much data, or no answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tellback.errors import McpError
from tellback.tools.mcp import McpServer
from tests.support.fake_http_server import (
    Delay,
    DropConnection,
    FakeHttpServer,
    Reply,
    Request,
    data_event,
    json_reply,
    sse_reply,
)

DONE = {"content": [{"type": "text", "text": "done"}]}
SPACES = b" " * 1_000_000


def result(request: Request, found: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request.body["id"], "result": found}


def mcp_handler(call: Callable[[Request], Reply]) -> Callable[[Request], Reply]:
    """Build a server with sessions whose tool `act` answers with `call` and whose tool `fine` answers correctly."""

    def respond(request: Request) -> Reply:
        method = (request.body or {}).get("method")
        if method == "initialize":
            info = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            info["serverInfo"] = {"name": "wire", "version": "1"}
            return json_reply(result(request, info), mcp_session_id="s1")
        if method == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("act", "fine")]
            return json_reply(result(request, {"tools": tools}))
        if method == "tools/call" and request.body["params"]["name"] == "fine":
            return json_reply(result(request, DONE))
        if method == "tools/call" or request.method == "GET":
            return call(request)
        return Reply(400 if method == "server/discover" else 202)

    return respond


def server_at(wire: FakeHttpServer, **options: Any) -> McpServer:
    return McpServer.http(f"{wire.url}/mcp", {"authorization": "Bearer t"}, **{"name": "web", **options})


def requests_of_method(wire: FakeHttpServer, method: str) -> list[Request]:
    return [request for request in wire.requests if (request.body or {}).get("method") == method]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(200, {"content-type": "application/json"}, (SPACES,) * 20), "a message of more than 16 MB"),
        (sse_reply("data: ", *["x" * 1_000_000] * 20), "a message of more than 16 MB"),
        (Reply(500, {"content-type": "application/json"}, (SPACES,) * 20), "a message of more than 16 MB"),
        (Reply(200, {"content-type": "application/json", "content-encoding": "gzip"}, (b"x",)), "a compressed answer"),
        (sse_reply(DropConnection()), "RemoteProtocolError"),
        (sse_reply(), "the answer was interrupted"),
    ],
    ids=["body", "event", "refusal", "packed", "cut", "no answer"],
)
async def test_an_unusable_answer_is_reported_and_the_next_call_works(reply: Reply, reason: str) -> None:
    async with FakeHttpServer(mcp_handler(lambda _: reply)) as wire, server_at(wire) as server:
        with pytest.raises(McpError, match=f"broke while act was running: .*{reason}.*not repeated"):
            await server.call("act")
        assert (await server.call("fine")).content == "done"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_abandoned_call_ends_its_request_and_notifies_the_server(kind: str) -> None:
    silent_reply = Reply(200, {"content-type": kind}, (b" \n", Delay(300)))
    async with FakeHttpServer(mcp_handler(lambda _: silent_reply)) as wire, server_at(wire, call_timeout=1) as server:
        with pytest.raises(McpError, match="act was not answered within 1 seconds"):
            await server.call("act")
        async with asyncio.timeout(20):
            await wire.client_left.wait()
            while not requests_of_method(wire, "notifications/cancelled"):  # noqa: ASYNC110 - it happens at the server
                await asyncio.sleep(0.02)
        [call], [cancelled] = (
            requests_of_method(wire, "tools/call"),
            requests_of_method(wire, "notifications/cancelled"),
        )
        assert cancelled.body["params"]["requestId"] == call.body["id"]
        assert cancelled.headers["mcp-session-id"] == "s1"


async def test_many_unanswered_calls_do_not_block_others() -> None:
    silent_reply = sse_reply(Delay(300))
    async with FakeHttpServer(mcp_handler(lambda _: silent_reply)) as wire, server_at(wire, call_timeout=3) as server:
        await server.tools()
        found = await asyncio.gather(*(server.call("act") for _ in range(105)), return_exceptions=True)
        assert all(isinstance(error, McpError) for error in found)
        assert (await server.call("fine")).content == "done"


async def test_an_unaccepted_notification_does_not_delay_calls() -> None:
    def respond(request: Request) -> Reply:
        method = (request.body or {}).get("method")
        return Reply(202, {}, (Delay(300),)) if method == "notifications/cancelled" else usual(request)

    usual = mcp_handler(lambda _: sse_reply(Delay(300)))
    async with FakeHttpServer(respond) as wire, server_at(wire, call_timeout=2) as server:
        with pytest.raises(McpError, match="act was not answered"):
            await server.call("act")
        assert (await server.call("fine")).content == "done"


async def test_errors_of_concurrent_calls_are_not_mixed_up() -> None:
    replies = [Reply(500), json_reply({"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": "not today"}})]
    async with FakeHttpServer(mcp_handler(lambda _: replies.pop(0))) as wire, server_at(wire) as server:
        with pytest.raises(McpError, match=r"act was rejected: HTTP status 500"):
            await server.call("act")
        with pytest.raises(McpError, match=r"act was rejected: not today \(code -32000\)\.$"):
            await server.call("act")


async def test_a_stream_that_ends_before_the_answer_is_resumed() -> None:
    def call(request: Request) -> Reply:
        if request.method == "POST":
            numbers.append(request.body["id"])
            return sse_reply("id: e1\nretry: 100\ndata:\n\n")
        return sse_reply(data_event({"jsonrpc": "2.0", "id": numbers[0], "result": DONE}))

    numbers: list[int] = []
    async with FakeHttpServer(mcp_handler(call)) as wire, server_at(wire) as server:
        assert (await server.call("act")).content == "done"
        assert (wire.last.method, wire.last.headers["last-event-id"]) == ("GET", "e1")
        assert len(numbers) == 1


async def test_pings_of_the_server_are_answered() -> None:
    def call(request: Request) -> Reply:
        ping = {"jsonrpc": "2.0", "id": "p1", "method": "ping"}
        return sse_reply(data_event(ping), Delay(0.5), data_event(result(request, DONE)))

    async with FakeHttpServer(mcp_handler(call)) as wire, server_at(wire) as server:
        assert (await server.call("act")).content == "done"
        answers = [request.body for request in wire.requests if (request.body or {}).get("id") == "p1"]
        assert answers == [{"jsonrpc": "2.0", "id": "p1", "result": {}}]


async def test_a_lost_session_is_replaced_and_the_call_is_retried() -> None:
    replies = [Reply(404)]
    usual = mcp_handler(lambda request: replies.pop() if replies else json_reply(result(request, DONE)))
    async with FakeHttpServer(usual) as wire, server_at(wire) as server:
        assert (await server.call("act")).content == "done"
        assert len(requests_of_method(wire, "initialize")) == 2


async def test_closing_deletes_the_session_on_the_server() -> None:
    async with FakeHttpServer(mcp_handler(lambda _: Reply(500))) as wire:
        async with server_at(wire):
            pass
        assert (wire.last.method, wire.last.headers["mcp-session-id"]) == ("DELETE", "s1")


async def test_redirects_are_followed_only_within_the_server() -> None:
    def redirect(request: Request) -> Reply:
        return usual(request) if request.path == "/mcp/" else Reply(307, {"location": location})

    usual = mcp_handler(lambda _: Reply(500))
    async with FakeHttpServer(redirect) as wire, FakeHttpServer(usual) as other:
        location = "/mcp/"
        async with server_at(wire) as server:
            assert (await server.call("fine")).content == "done"
        location = f"{other.url}/mcp/?token=1"
        with pytest.raises(McpError, match=rf"it redirects to {other.url}/mcp/, which is not followed"):
            await server_at(wire).connect()
        assert not other.requests


async def test_closing_fails_running_calls_immediately() -> None:
    async with FakeHttpServer(mcp_handler(lambda _: sse_reply(Delay(300)))) as wire:
        server = server_at(wire)
        await server.connect()
        await server.tools()
        call = asyncio.create_task(server.call("act"))
        while not requests_of_method(wire, "tools/call"):  # noqa: ASYNC110 - it happens at the server
            await asyncio.sleep(0.02)
        await server.close()
        with pytest.raises(McpError, match="broke while act was running: the connection was closed"):
            await call
