"""HTTP by hand: bytes that no client library would send, and what comes back."""

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
class RawAnswer:
    """An answer as it came: status 0 is a connection that was closed without one."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: bytes = b""

    @property
    def code(self) -> str:
        """The code of a problem."""
        return str(self.json()["code"]) if "problem+json" in self.headers.get("content-type", "") else ""

    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


class Connection:
    """A connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are; a server that has closed does not mind."""
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError:
            pass

    async def answer(self, seconds: float = SECONDS) -> RawAnswer:
        """The next answer, or that the connection was closed."""
        async with asyncio.timeout(seconds):
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])
                }
                return RawAnswer(int(lines[0].split()[1]), headers, await self._body(headers), head)
            except (asyncio.IncompleteReadError, ConnectionError):
                return RawAnswer(0, {}, b"")

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
        """Whether the server closes the connection, and says nothing more before it does."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """A connection to a server, which is dropped at the end."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Connection(reader, writer)
    finally:
        writer.transport.abort()


async def ask(url: str, data: bytes, seconds: float = SECONDS) -> RawAnswer:
    """Send bytes on a connection of their own; gives the first answer."""
    async with connected(url) as connection:
        sending = asyncio.create_task(connection.send(data))
        try:
            return await connection.answer(seconds)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


def request(
    method: str, path: str | bytes, body: bytes | None = None, headers: list[tuple[str, str | bytes]] | None = None
) -> bytes:
    """A request in bytes, with the headers that it needs unless others of that name are given."""
    given = list(headers or [])
    names = {name.lower() for name, _ in given}
    if "host" not in names:
        given.insert(0, ("Host", "127.0.0.1"))
    if body is not None:
        if "content-type" not in names:
            given.append(("Content-Type", "application/json"))
        if not names & {"content-length", "transfer-encoding"}:
            given.append(("Content-Length", str(len(body))))
    lines = [method.encode() + b" " + _bytes(path) + b" HTTP/1.1", *(_bytes(n) + b": " + _bytes(v) for n, v in given)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def chunked(*parts: bytes) -> bytes:
    """A body in parts, as `Transfer-Encoding: chunked` has it."""
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")
