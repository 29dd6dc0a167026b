"""A loopback proxy in front of a server that breaks connections where a test requests it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Fault = Literal["cut", "pass and cut", "pass and say nothing", "pass and answer late"]
LATE_SECONDS = 0.8
"""The delay of a late response, in seconds."""


@dataclass
class _Trap:
    """The fault for requests that contain certain bytes; `remaining` counts down to 0."""

    marker: bytes
    fault: Fault
    remaining: int


@dataclass
class _ResponseState:
    """How the responses on one connection are forwarded."""

    late: bool = False
    never: bool = False


class FaultProxy:
    """Forwards everything in both directions until a trap matches.

    With `trap(b"COMMIT", "pass and cut")` the server commits, but the client does not receive the response; with "cut"
    the server does not receive the request. `triggered` counts the requests that matched a trap. `refuse` closes all
    connections and rejects new ones until `accept`. `inject` sends bytes to every client as if the server sent them.
    """

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._traps: list[_Trap] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._refusing = False
        self.triggered = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(self._parts._replace(netloc=f"{self._parts.username}@127.0.0.1:{port}"))

    def trap(self, marker: bytes, fault: Fault, times: int = 1) -> None:
        self._traps.append(_Trap(marker, fault, times))

    def refuse(self) -> None:
        self._refusing = True
        for connection in self._connections:
            connection.cancel()

    def accept(self) -> None:
        self._refusing = False

    async def inject(self, data: bytes) -> None:
        for client in self._clients:
            client.write(data)
            await client.drain()

    async def __aenter__(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        await asyncio.sleep(0)  # The handler of the last accepted connection has not started yet.
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # A handler that was cancelled during cleanup has not waited for its sockets.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        upstream: asyncio.StreamWriter | None = None
        pumps: list[asyncio.Task[None]] = []
        try:
            if self._refusing:
                return
            self._clients.add(writer)
            answers, upstream = await asyncio.open_connection(self._parts.hostname, self._parts.port)
            responses = _ResponseState()
            pumps = [
                asyncio.create_task(self._forward_requests(reader, upstream, responses)),
                asyncio.create_task(_forward_responses(answers, writer, responses)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        except asyncio.CancelledError:
            return  # Cancelled by the test; asyncio would log a cancelled handler as an error.
        finally:
            ends = [end for end in (writer, upstream) if end is not None]
            for end in ends:
                end.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, *(end.wait_closed() for end in ends), return_exceptions=True)
            self._connections.discard(task)
            self._clients.discard(writer)

    async def _forward_requests(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, responses: _ResponseState
    ) -> None:
        while data := await reader.read(2**16):
            trap = next((trap for trap in self._traps if trap.remaining and trap.marker in data), None)
            if trap is not None:
                trap.remaining -= 1
                self.triggered += 1
                if trap.fault == "cut":
                    return
                responses.late = trap.fault == "pass and answer late"
                responses.never = not responses.late
            upstream.write(data)
            await upstream.drain()
            if trap is not None and trap.fault == "pass and cut":
                # Long enough for the server to execute it; its response is not forwarded, so it cannot be awaited.
                await asyncio.sleep(0.3)
                return


async def _forward_responses(
    answers: asyncio.StreamReader, writer: asyncio.StreamWriter, responses: _ResponseState
) -> None:
    while data := await answers.read(2**16):
        if responses.late:
            responses.late = False
            await asyncio.sleep(LATE_SECONDS)
        if not responses.never:
            writer.write(data)
            await writer.drain()
