"""Raw HTTP: send bytes that no client library would send, and parse the response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A raw response; status 0 means that the connection was closed without one."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes = b""

    @property
    def code(self) -> str:
        """The code of the problem."""
        return str(self.json()["code"]) if "problem+json" in self.headers.get("content-type", "") else ""

    def json(self) -> Any:
        """The parsed body."""
        return json.loads(self.body)


class RawConnection:
    """A connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes; ignore the error if the server has closed the connection."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError:
            pass

    async def read_response(self, seconds: float = SECONDS) -> RawResponse:
        """Read the next response, or status 0 if the connection was closed."""
        async with asyncio.timeout(seconds):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])
                }
                return RawResponse(int(lines[0].split()[1]), headers, await self._body(headers), head)
            except (asyncio.IncompleteReadError, ConnectionError):
                return RawResponse(0, {}, b"")

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
        await self.reader.readline()
        return body

    async def is_closed(self, seconds: float = SECONDS) -> bool:
        """Whether the server closes the connection without sending more."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def open_connection(url: str) -> AsyncIterator[RawConnection]:
    """Open a connection to a server and drop it at the end."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield RawConnection(reader, writer)
    finally:
        writer.transport.abort()


async def send_request(url: str, data: bytes, seconds: float = SECONDS) -> RawResponse:
    """Send bytes on a new connection and return the first response."""
    async with open_connection(url) as connection:
        sending = asyncio.create_task(connection.send(data))
        try:
            return await connection.read_response(seconds)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


def build_request(
    method: str, path: str | bytes, body: bytes | None = None, headers: list[tuple[str, str | bytes]] | None = None
) -> bytes:
    """Build a request, with the required headers unless they are passed."""
    header_list = list(headers or [])
    names = {name.lower() for name, _ in header_list}
    if "host" not in names:
        header_list.insert(0, ("Host", "127.0.0.1"))
    if body is not None:
        if "content-type" not in names:
            header_list.append(("Content-Type", "application/json"))
        if not names & {"content-length", "transfer-encoding"}:
            header_list.append(("Content-Length", str(len(body))))
    lines = [
        method.encode() + b" " + _to_bytes(path) + b" HTTP/1.1",
        *(_to_bytes(n) + b": " + _to_bytes(v) for n, v in header_list),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def encode_chunked(*parts: bytes) -> bytes:
    """Encode a body in chunks, for `Transfer-Encoding: chunked`."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def _to_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
