"""Slow clients are disconnected and do not block others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.server.auth import Authenticator, ServerContext
from tellback.server.middleware.auth import AuthMiddleware
from tellback.server.operations.http_server import BoundedProtocol
from tests.support.http_server import running_server
from tests.support.raw_http import build_request, open_connection, send_request

HERE = "/ai-conversations"
SETTINGS = ServerSettings(open=True, body_bytes=10_000, body_seconds=0.4)


class ShortTimeoutProtocol(BoundedProtocol):
    header_seconds = 0.4


@asynccontextmanager
async def running(app: Any) -> AsyncIterator[str]:
    options: dict[str, Any] = {"http": ShortTimeoutProtocol, "ws": "none", "timeout_graceful_shutdown": 2}
    async with running_server(app, **options) as address:
        yield address


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False) as tellback:
        yield tellback


@pytest.fixture
async def url(tb: Tellback) -> AsyncIterator[str]:
    async with running(create_app(tb, SETTINGS, opens=False)) as address:
        yield address
        assert (await send_request(address, build_request("GET", HERE))).status == 200


def partial_request(length: int = 100) -> bytes:
    return build_request("POST", HERE, b'{"namespace"', [("Content-Length", str(length))])


async def test_incomplete_headers_time_out(url: str) -> None:
    for partial_head in (b"", b"GET ", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"):
        async with open_connection(url) as connection:
            await connection.send(partial_head)
            assert await connection.is_closed()


async def test_headers_sent_byte_by_byte_time_out(url: str) -> None:
    async with open_connection(url) as connection:
        await connection.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ")
        closed_task = asyncio.create_task(connection.is_closed())
        while not closed_task.done():
            await connection.send(b"X")
            await asyncio.sleep(0.02)
        assert await closed_task


async def test_a_missing_body_times_out(url: str) -> None:
    async with open_connection(url) as connection:
        await connection.send(partial_request())
        answer = await connection.read_response()
        assert (answer.status, answer.code) == (408, "body-timeout")
        assert answer.headers["connection"] == "close"
        assert await connection.is_closed()


async def test_a_body_sent_byte_by_byte_times_out(url: str) -> None:
    async with open_connection(url) as connection:
        await connection.send(partial_request(5_000))
        response_task = asyncio.create_task(connection.read_response())
        while not response_task.done():
            await connection.send(b" ")
            await asyncio.sleep(0.02)
        assert (await response_task).status == 408


async def test_a_disconnect_in_the_middle_of_a_body_leaves_no_state(url: str) -> None:
    for _ in range(20):
        async with open_connection(url) as connection:
            await connection.send(partial_request())


async def test_many_slow_clients_do_not_block_others(url: str) -> None:
    async def slow() -> int:
        async with open_connection(url) as connection:
            await connection.send(partial_request())
            return (await connection.read_response()).status

    waiting = [asyncio.create_task(slow()) for _ in range(40)]
    assert (await send_request(url, build_request("GET", HERE))).status == 200
    assert set(await asyncio.gather(*waiting)) == {408}


async def test_a_client_that_never_reads_does_not_block_others(url: str) -> None:
    async with open_connection(url) as connection:
        connection.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await connection.send(build_request("GET", "/openapi.json") * 20)
        assert (await send_request(url, build_request("GET", HERE))).status == 200


UNREAD = {
    "401": (("POST", HERE, 5_000), 401),
    "404": (("POST", "/nowhere", 5_000), 404),
    "405": (("PUT", HERE, 5_000), 405),
    "413": (("POST", HERE, 1_000_000), 413),
    "live": (("GET", "/health/live", 5_000), 200),
}


def request_without_body(method: str, path: str, length: int) -> bytes:
    """A request whose announced body never arrives."""
    return build_request(method, path, b"", [("Content-Length", str(length))])


@asynccontextmanager
async def serve_kind(tb: Tellback, kind: str) -> AsyncIterator[str]:
    settings = SETTINGS if kind != "401" else replace(SETTINGS, open=False)
    async with running(create_app(tb, settings, opens=False)) as address:
        yield address


@pytest.mark.parametrize("kind", UNREAD)
async def test_an_unread_missing_body_does_not_keep_the_connection_open(tb: Tellback, kind: str) -> None:
    request_args, status = UNREAD[kind]
    async with serve_kind(tb, kind) as address, open_connection(address) as connection:
        await connection.send(request_without_body(*request_args))
        assert (await connection.read_response()).status == status
        await connection.send(b"x")
        assert await connection.is_closed(5)


@pytest.mark.parametrize("kind", ["401", "live"])
async def test_an_unread_body_sent_byte_by_byte_gets_no_more_time(tb: Tellback, kind: str) -> None:
    request_args, status = UNREAD[kind]
    async with serve_kind(tb, kind) as address, open_connection(address) as connection:
        await connection.send(request_without_body(*request_args))
        assert (await connection.read_response()).status == status
        closed_task = asyncio.create_task(connection.is_closed(5))
        while not closed_task.done():
            await connection.send(b"x")
            await asyncio.sleep(0.02)
        assert await closed_task


@pytest.mark.parametrize("pause", [0.0, 0.3])
async def test_a_connection_continues_if_an_unread_body_arrives_in_time(tb: Tellback, pause: float) -> None:
    async with serve_kind(tb, "401") as address, open_connection(address) as connection:
        for _ in range(4):
            await connection.send(request_without_body("POST", HERE, 10))
            assert (await connection.read_response()).status == 401
            await asyncio.sleep(pause)
            await connection.send(b"x" * 10)
            await asyncio.sleep(pause)
        await connection.send(build_request("GET", "/health/live"))
        assert (await connection.read_response()).status == 200


@pytest.mark.parametrize(("kind", "status"), [("401", 401), ("open", 201)])
async def test_requests_with_complete_bodies_share_a_connection(tb: Tellback, kind: str, status: int) -> None:
    full_request = build_request("POST", HERE, b'{"namespace": "chat"}')
    async with serve_kind(tb, kind) as address, open_connection(address) as connection:
        for _ in range(4):
            await connection.send(full_request)
            assert (await connection.read_response()).status == status
            await asyncio.sleep(0.2)
        await connection.send(full_request * 5)
        for _ in range(5):
            assert (await connection.read_response()).status == status


@pytest.mark.parametrize("too_large", [False, True])
async def test_a_started_response_is_not_started_again(tb: Tellback, too_large: bool) -> None:
    seen: list[str] = []

    async def answer_early(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            pass
        seen.append(message["type"])
        await send({"type": "http.response.body", "body": b"ended"})

    async with running(with_auth(tb, answer_early)) as address, open_connection(address) as connection:
        await connection.send(build_request("POST", HERE, b"", [("Transfer-Encoding", "chunked")]))
        for _ in range(4 if too_large else 0):
            await connection.send(b"fa0\r\n" + b"x" * 4_000 + b"\r\n")
        answer = await connection.read_response()
        assert (answer.status, answer.body) == (200, b"begun ended")
    assert seen == ["http.disconnect"]


async def test_a_rejected_body_is_reported_even_if_the_app_swallows_the_error(tb: Tellback) -> None:
    async def swallow_errors(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await receive()
            await receive()
        except Exception:  # noqa: BLE001 - like a careless app
            await send({"type": "http.response.start", "status": 500, "headers": []})
            await send({"type": "http.response.body", "body": b"oh"})

    async with running(with_auth(tb, swallow_errors)) as address, open_connection(address) as connection:
        await connection.send(partial_request())
        assert (await connection.read_response()).code == "body-timeout"


def with_auth(tb: Tellback, app: Any) -> AuthMiddleware:
    """A custom app behind the auth middleware."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})

    return AuthMiddleware(answered, ServerContext(tb, SETTINGS), Authenticator(tb, SETTINGS))
