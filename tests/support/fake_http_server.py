"""A loopback HTTP server that sends exactly the bytes a test scripts, and records the requests.

It uses plain sockets, so that a test can cut off a response, stay silent, or see the client disconnect.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


class DropConnection:
    """Drop the connection without ending the response."""


@dataclass(frozen=True)
class Delay:
    """Stay silent for a while; the client may disconnect meanwhile."""

    seconds: float


@dataclass(frozen=True)
class Reply:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: tuple[bytes | Delay | DropConnection, ...] = ()
    header_delay: float = 0
    """How many seconds to stay silent before the headers."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


def json_reply(body: Any, status: int = 200, **headers: str) -> Reply:
    sent = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return Reply(status, sent, (json.dumps(body).encode(),))


def sse_reply(*events: Any, status: int = 200) -> Reply:
    """Server-sent events: text is sent unchanged; `Delay` and `DropConnection` are executed."""
    body = tuple(event.encode() if isinstance(event, str) else event for event in events)
    return Reply(status, {"content-type": "text/event-stream"}, body)


def data_event(data: Any, event: str | None = None) -> str:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n"


class FakeHttpServer:
    """Responds with the scripted replies in order, or with the result of `respond`."""

    def __init__(self, respond: Callable[[Request], Reply] | None = None) -> None:
        self._respond = respond
        self.requests: list[Request] = []
        self.connections = 0
        self.request_received = asyncio.Event()
        self.client_left = asyncio.Event()
        self._replies: list[Reply] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    def reply_with(self, *replies: Reply) -> None:
        self._replies.extend(replies)

    def always_reply_with(self, reply: Reply) -> None:
        self._replies.extend([reply] * 100)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def last(self) -> Request:
        return self.requests[-1]

    async def __aenter__(self) -> FakeHttpServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while request := await _read_request(reader):
                self.requests.append(request)
                self.request_received.set()
                if self._respond is not None:
                    self._replies.append(self._respond(request))
                if not self._replies:
                    missing = {"error": {"message": "no reply was scripted for this request", "type": "api_error"}}
                    await self._send(json_reply(missing, 418), reader, writer)
                elif not await self._send(self._replies.pop(0), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.client_left.set()
        except asyncio.CancelledError:
            return  # the test has finished; asyncio would log a cancelled handler as an error
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _send(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if reply.header_delay and await _client_leaves(reader, reply.header_delay):
            self.client_left.set()
            return False
        lines = [f"HTTP/1.1 {reply.status} X", "transfer-encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in reply.headers.items()]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for part in reply.body:
            if isinstance(part, DropConnection):
                await writer.drain()
                return False
            if isinstance(part, Delay):
                await writer.drain()
                if await _client_leaves(reader, part.seconds):
                    self.client_left.set()
                    return False
            elif part:
                writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _client_leaves(reader: asyncio.StreamReader, seconds: float) -> bool:
    try:
        return await asyncio.wait_for(reader.read(1), seconds) == b""
    except TimeoutError:
        return False


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, json.loads(body) if body else None)


def joined_text(deltas: Iterable[Any]) -> str:
    """Return the joined text deltas of a stream."""
    from tellback.types import TextDelta

    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
