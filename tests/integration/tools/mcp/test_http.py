"""A server of the official SDK over streamable HTTP, in both generations of the protocol."""

from __future__ import annotations

import asyncio

import pytest

from tellback.errors import McpError
from tellback.tools import ToolCall, dispatch
from tellback.tools.mcp import McpServer
from tests.integration.tools.mcp.support import by_name, free_port, http_server, listens, wait_until
from tests.support.fake_http_server import Delay, FakeHttpServer, Reply, Request


def server_at(port: int, **options: float) -> McpServer:
    return McpServer.http(f"http://127.0.0.1:{port}/mcp", name="web", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("server_options", [(), ("old",)], ids=["newest", "with sessions"])
async def test_tools_work_over_http(server_options: tuple[str, ...]) -> None:
    port = free_port()
    async with http_server(port, *server_options), server_at(port, call_timeout=20) as server:
        tools = await by_name(server)
        result = await dispatch(ToolCall("c", "add", {"x": 2, "y": 3}), tools)
        assert result.content == "5"
        assert (await server.call("long", {"chars": 2_000_000})).content.startswith("xxx")
        slow = asyncio.create_task(server.call("slow", {"seconds": 60}))
        await asyncio.sleep(0.5)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await server.call("add", {"x": 1, "y": 1})).content == "2"


@pytest.mark.timeout(150)  # two servers start, one after the other
@pytest.mark.parametrize("server_options", [(), ("old",)], ids=["newest", "with sessions"])
async def test_the_next_call_reconnects_to_a_restarted_server(server_options: tuple[str, ...]) -> None:
    port = free_port()
    server = server_at(port)
    try:
        async with http_server(port, *server_options):
            await server.connect()
            tools = await by_name(server)
            assert (await server.call("count")).content == "1"
            assert (await server.call("count")).content == "2"
        async with http_server(port, *server_options):
            result = await dispatch(ToolCall("c", "count", {}), tools)
            if result.is_error:  # this call detected the broken connection
                assert "next call connects again" in result.content
                result = await dispatch(ToolCall("c", "count", {}), tools)
            assert result.content == "1"
    finally:
        await server.close()


async def test_an_interrupted_call_is_not_repeated() -> None:
    port = free_port()
    async with http_server(port):
        server = server_at(port)
        await server.connect()
        try:
            await server.tools()
            with pytest.raises(McpError, match="not repeated"):
                await server.call("crash")
            await wait_until(lambda: not listens(port), 20)  # the process takes a moment to exit
            with pytest.raises(McpError, match="'web': it cannot be connected"):
                await server.call("count")
        finally:
            await server.close()


async def test_an_unreachable_server_is_reported_by_name() -> None:
    with pytest.raises(McpError, match=r"'web': it cannot be connected: ConnectError"):
        await server_at(free_port()).connect()


async def test_headers_are_sent_and_error_statuses_are_reported() -> None:
    def refuse(request: Request) -> Reply:
        return Reply(401, {}, (b"who are you?",))

    async with FakeHttpServer(refuse) as wire:
        server = McpServer.http(f"{wire.url}/mcp", {"authorization": "Bearer t"}, name="web")
        with pytest.raises(McpError, match="HTTP status 401"):
            await server.connect()
        assert wire.requests[0].headers["authorization"] == "Bearer t"
        assert "Bearer" not in repr(server)


async def test_connecting_to_a_silent_server_times_out() -> None:
    async with FakeHttpServer(lambda _: Reply(200, {"content-type": "application/json"}, (Delay(300),))) as wire:
        with pytest.raises(McpError, match="'web': it did not connect within 2 seconds"):
            await McpServer.http(wire.url, name="web", connect_timeout=2).connect()


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b""])
async def test_invalid_answers_over_http_are_errors(body: bytes) -> None:
    async with FakeHttpServer(lambda _: Reply(200, {"content-type": "application/json"}, (body,))) as wire:
        with pytest.raises(McpError, match="'web': it cannot be connected"):
            await McpServer.http(wire.url, name="web", connect_timeout=20).connect()


async def test_a_slow_call_over_http_times_out_and_the_session_continues() -> None:
    port = free_port()
    async with http_server(port), server_at(port, call_timeout=4) as server:
        await server.tools()
        with pytest.raises(McpError, match="not answered within 4 seconds"):
            await server.call("slow", {"seconds": 60})
        assert (await server.call("add", {"x": 1, "y": 1})).content == "2"
