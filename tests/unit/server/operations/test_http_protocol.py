"""Limits of time and size for HTTP connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest

from tellback.server.operations.http_server import BoundedProtocol
from tests.support.http_server import running_server

pytestmark = pytest.mark.slow

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


class HastyProtocol(BoundedProtocol):
    header_seconds = 0.3


class Answers:
    """An app with a slow response."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        await asyncio.sleep(self._seconds)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


async def exchange(url: str, *parts: bytes, pause: float = 0.0) -> bytes:
    """Send bytes and return everything the server sends until it closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    received = b""
    async with asyncio.timeout(20):
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
            while chunk := await reader.read(1_000):
                received += chunk
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return received


async def test_a_connection_without_headers_is_closed() -> None:
    async with running_server(Answers(), http=HastyProtocol) as url:
        assert await exchange(url) == b""
        assert await exchange(url, HEAD) == b""
        assert await exchange(url, *[b"X-More: x\r\n"] * 30, pause=0.05) != b"200"


async def test_headers_that_are_too_large_are_rejected() -> None:
    async with running_server(Answers(), http=BoundedProtocol) as url:
        assert b" 400 " in await exchange(url, HEAD, b"X-Long: " + b"x" * 100_000, pause=0.1)


async def test_later_requests_on_a_connection_have_the_same_time_limit() -> None:
    async with running_server(Answers(), http=HastyProtocol, timeout_keep_alive=30) as url:
        received = await exchange(url, HEAD + b"\r\n", b"\r\n", b"GET", pause=0.1)
    assert received.count(b" 200 ") == 1


async def test_a_slow_response_is_not_interrupted_by_the_next_request() -> None:
    async with running_server(Answers(1.0), http=HastyProtocol) as url:
        received = await exchange(url, HEAD + b"\r\n" + b"GET / HTTP/1.1\r\n")
    assert received.count(b" 200 ") == 1


async def test_a_connection_stays_open_equally_long_after_slow_and_quick_responses() -> None:
    class SlowProtocol(BoundedProtocol):
        header_seconds = 0.6

    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    async with running_server(Answers(0.5), http=SlowProtocol, timeout_keep_alive=30) as url:
        received = await exchange(url, HEAD + b"\r\n", last, pause=0.9)
    assert received.count(b" 200 ") == 2


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    async with running_server(Answers(), http=HastyProtocol) as url:
        last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        received = await exchange(url, *[HEAD + b"\r\n"] * 4, last, pause=0.15)
    assert received.count(b" 200 ") == 5


async def test_a_response_that_is_not_read_is_aborted() -> None:
    finished = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await Answers()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})

        async def wait_for_disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            finished.set()

        watching = asyncio.create_task(wait_for_disconnect())
        while not finished.is_set():
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await watching

    class UnpaidProtocol(BoundedProtocol):
        stalled_seconds = 0.3

    async with running_server(endless, http=UnpaidProtocol) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1_024)
        writer.write(HEAD + b"\r\n")
        await asyncio.wait_for(finished.wait(), 15)
        writer.close()


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
async def test_a_connection_closes_even_if_the_end_of_its_response_is_not_read(connection: str) -> None:
    found: list[RecordingProtocol] = []

    class RecordingProtocol(BoundedProtocol):
        stalled_seconds = 0.3

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.lost = asyncio.Event()
            found.append(self)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.lost.set()

    async def overflowing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await Answers()(scope, receive, send)
            return
        headers = [(b"connection", connection.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        while not found[0].transport.get_write_buffer_size():
            await send({"type": "http.response.body", "body": b"x" * 4_096, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    async with running_server(overflowing, http=RecordingProtocol, timeout_keep_alive=0.2) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(HEAD + b"\r\n")
            async with asyncio.timeout(10):
                while not found:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await found[0].lost.wait()
