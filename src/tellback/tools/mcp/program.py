"""A server as a child process, spoken to over its standard input and output."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mcp.client.stdio import get_default_environment
from mcp.shared.dispatcher import CallOptions

from tellback.tools.mcp.options import Program
from tellback.tools.mcp.stderr import StderrLog
from tellback.tools.mcp.wire import (
    MAX_MESSAGE,
    TOO_LONG,
    Broken,
    Clean,
    Wire,
    cancelled,
    decode,
    encode,
    message,
    reply_to,
)

MAX_UNASKED = 2 * MAX_MESSAGE
GRACE = 2.0
LAST_OUTPUT = 0.2

log = logging.getLogger("tellback.tools.mcp")


class ProgramWire(Wire, asyncio.SubprocessProtocol):
    """Messages as lines. A line without an end, or lines nobody asked for without an end, break the connection."""

    def __init__(self, server: str, program: Program, clean: Clean) -> None:
        super().__init__(clean)
        self._server = server
        self._program = program
        self._stderr = StderrLog(server)
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._line = bytearray()
        self._unasked = 0
        self._hostile = self._warned = self._deaf = False
        self._exited, self._closed = asyncio.Event(), asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None

    async def __aenter__(self) -> ProgramWire:
        program = self._program
        command = (shutil.which(program.command) if sys.platform == "win32" else None) or program.command
        self._transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            command,
            *program.args,
            env=get_default_environment() | dict(program.env or {}),
            cwd=program.cwd,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end("it was closed")
        assert self._transport is not None
        try:
            await self._stop()
            await _within(self._closed, LAST_OUTPUT)  # unless somebody the program left behind keeps the pipes open
        finally:
            if not self._deaf:
                self._input.abort()
            with suppress(PermissionError):
                self._transport.close()
        await _within(self._closed, 1)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        self._send(message(method, params))

    def last_words(self) -> str:
        return f" It last wrote: {' / '.join(self._stderr.last)[-500:]}" if self._stderr.last else ""

    async def _ask(self, request: dict[str, Any], opts: CallOptions) -> dict[str, Any]:
        if self.ended.is_set():
            raise Broken("it has ended")
        key = str(request["id"])
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            self._send(request)
            return await answer
        except asyncio.CancelledError:
            if opts.get("cancel_on_abandon", True):
                self._send(cancelled(request))
            raise
        finally:
            del self._waiting[key]

    @property
    def _input(self) -> Any:
        assert self._transport is not None
        return self._transport.get_pipe_transport(0)

    def _send(self, sent: dict[str, Any]) -> None:
        pipe = self._input
        if pipe.is_closing() or self.ended.is_set():
            return
        if pipe.get_write_buffer_size() > MAX_MESSAGE:
            self._end("it no longer reads what it is sent", hostile=True)
            return
        pipe.write(encode(sent) + b"\n")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take what the program wrote; after the end it is thrown away, so that the program can end too."""
        if fd == 2:
            self._stderr.data_received(data)
        elif not self.ended.is_set():
            self._take(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._end("it closed its output")
        elif fd == 0:
            self._deaf = True
            self._end_soon()

    def process_exited(self) -> None:
        self._exited.set()
        self._end_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stderr.connection_lost(exc)
        self._closed.set()

    def _take(self, data: bytes) -> None:
        start = len(self._line)
        self._line += data
        while (end := self._line.find(b"\n", start)) >= 0:
            line = bytes(self._line[:end]).strip()
            del self._line[: end + 1]
            start = 0
            if line:
                self._hear(line)
        if len(self._line) > MAX_MESSAGE:
            self._end(TOO_LONG, hostile=True)
        elif self._unasked > MAX_UNASKED:
            self._end("it does not stop sending what nobody asked for", hostile=True)

    def _hear(self, line: bytes) -> None:
        self._unasked += len(line)
        try:
            heard = decode(line)
        except Broken as error:
            self._end(str(error), hostile=True)
            return
        if heard is None:
            if not self._warned:
                self._warned = True
                log.warning("MCP server %r writes to its output what is no message, such as %.80r", self._server, line)
        elif "method" not in heard:
            answer = self._waiting.get(str(heard.get("id")))
            if answer is not None and not answer.done():
                self._unasked = 0
                answer.set_result(heard)
        elif "id" in heard:
            self._send(reply_to(heard))
        elif heard["method"] == "notifications/tools/list_changed":
            self.changes += 1

    def _end(self, why: str, *, hostile: bool = False) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        self._hostile = hostile
        if hostile:
            log.warning("MCP server %r is ended: %s", self._server, why)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(Broken(why))

    def _end_soon(self) -> None:
        """Its last answer may still be in the pipe."""
        asyncio.get_running_loop().call_later(LAST_OUTPUT, self._end, "it ended")

    async def _stop(self) -> None:
        """Ask the program to end by closing its input, then firmly, then by force."""
        assert self._transport is not None
        self._input.close()
        if await _within(self._exited, 0 if self._hostile else GRACE):
            return
        for sign in ("SIGTERM", "SIGKILL"):
            self._signal(sign)
            if await _within(self._exited, GRACE):
                return
        log.warning("MCP server %r: process %d could not be ended", self._server, self._transport.get_pid())

    def _signal(self, sign: str) -> None:
        """To the whole group, since what was started may be a wrapper."""
        assert self._transport is not None
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._transport.kill()
            else:
                os.killpg(self._transport.get_pid(), signal.Signals[sign])


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
