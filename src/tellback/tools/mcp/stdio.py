"""An MCP transport over the standard input and output of a child process."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mcp.client.stdio import get_default_environment
from mcp.shared.dispatcher import CallOptions

from tellback.tools.mcp.server import StdioTarget
from tellback.tools.mcp.transport import (
    MAX_MESSAGE,
    TOO_LONG,
    AnswerFilter,
    ConnectionBroken,
    McpTransport,
    build_cancellation,
    build_message,
    build_response,
    decode,
    encode,
)

log = logging.getLogger("tellback.tools.mcp")

MAX_LINE = 1_000
MAX_LINES_A_SECOND = 100


MAX_UNSOLICITED_BYTES = 2 * MAX_MESSAGE
GRACE_SECONDS = 2.0
LAST_OUTPUT_SECONDS = 0.2


class StderrLog:
    """Logs lines under the server's name, not more than so many a second, and keeps the last ones."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._partial_line = b""
        self._current_second = 0
        self._logged_lines = 0
        self._skipped_lines = 0
        self.last_lines: deque[str] = deque(maxlen=5)

    def data_received(self, data: bytes) -> None:
        """Take what was written."""
        *lines, rest = (self._partial_line + data).split(b"\n")
        self._partial_line = rest[:MAX_LINE]  # of an endless line the beginning is enough
        for line in lines:
            self._log_line(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take what has no line's end."""
        self._log_line(self._partial_line)
        self._report_skipped()

    def _log_line(self, line: bytes) -> None:
        text = line[:MAX_LINE].decode(errors="replace").strip()
        if not text:
            return
        self.last_lines.append(text)
        second = int(asyncio.get_running_loop().time())
        if second != self._current_second:
            self._report_skipped()
            self._current_second, self._logged_lines = second, 0
        if self._logged_lines < MAX_LINES_A_SECOND:
            self._logged_lines += 1
            log.info("%s: %s", self._server, text)
        else:
            self._skipped_lines += 1

    def _report_skipped(self) -> None:
        if self._skipped_lines:
            log.info("%s: %d more lines were left out", self._server, self._skipped_lines)
            self._skipped_lines = 0


class StdioTransport(McpTransport, asyncio.SubprocessProtocol):
    """Messages as lines. A line without an end, or lines nobody asked for without an end, break the connection."""

    def __init__(self, server: str, target: StdioTarget, filter_answer: AnswerFilter) -> None:
        super().__init__(filter_answer)
        self._server = server
        self._target = target
        self._stderr = StderrLog(server)
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._buffer = bytearray()
        self._unsolicited_bytes = 0
        self._is_hostile = self._has_warned = self._is_input_closed = False
        self._exited, self._closed = asyncio.Event(), asyncio.Event()
        self._process: asyncio.SubprocessTransport | None = None

    async def __aenter__(self) -> StdioTransport:
        target = self._target
        command = (shutil.which(target.command) if sys.platform == "win32" else None) or target.command
        self._process, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            command,
            *target.args,
            env=get_default_environment() | dict(target.env or {}),
            cwd=target.cwd,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._fail("it was closed")
        assert self._process is not None
        try:
            await self._stop_process()
            await _wait_for_event(
                self._closed, LAST_OUTPUT_SECONDS
            )  # unless somebody the program left behind keeps the pipes open
        finally:
            if not self._is_input_closed:
                self._input.abort()
            with suppress(PermissionError):
                self._process.close()
        await _wait_for_event(self._closed, 1)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        self._send(build_message(method, params))

    def describe_stderr(self) -> str:
        return f" It last wrote: {' / '.join(self._stderr.last_lines)[-500:]}" if self._stderr.last_lines else ""

    async def _request(self, request: dict[str, Any], opts: CallOptions) -> dict[str, Any]:
        if self.ended.is_set():
            raise ConnectionBroken("it has ended")
        key = str(request["id"])
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pending[key] = answer
        try:
            self._send(request)
            return await answer
        except asyncio.CancelledError:
            if opts.get("cancel_on_abandon", True):
                self._send(build_cancellation(request))
            raise
        finally:
            del self._pending[key]

    @property
    def _input(self) -> Any:
        assert self._process is not None
        return self._process.get_pipe_transport(0)

    def _send(self, message: dict[str, Any]) -> None:
        pipe = self._input
        if pipe.is_closing() or self.ended.is_set():
            return
        if pipe.get_write_buffer_size() > MAX_MESSAGE:
            self._fail("it no longer reads what it is sent", is_hostile=True)
            return
        pipe.write(encode(message) + b"\n")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Take what the program wrote; after the end it is thrown away, so that the program can end too."""
        if fd == 2:
            self._stderr.data_received(data)
        elif not self.ended.is_set():
            self._receive(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._fail("it closed its output")
        elif fd == 0:
            self._is_input_closed = True
            self._fail_soon()

    def process_exited(self) -> None:
        self._exited.set()
        self._fail_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stderr.connection_lost(exc)
        self._closed.set()

    def _receive(self, data: bytes) -> None:
        start = len(self._buffer)
        self._buffer += data
        while (end := self._buffer.find(b"\n", start)) >= 0:
            line = bytes(self._buffer[:end]).strip()
            del self._buffer[: end + 1]
            start = 0
            if line:
                self._handle_line(line)
        if len(self._buffer) > MAX_MESSAGE:
            self._fail(TOO_LONG, is_hostile=True)
        elif self._unsolicited_bytes > MAX_UNSOLICITED_BYTES:
            self._fail("it does not stop sending what nobody asked for", is_hostile=True)

    def _handle_line(self, line: bytes) -> None:
        self._unsolicited_bytes += len(line)
        try:
            message = decode(line)
        except ConnectionBroken as error:
            self._fail(str(error), is_hostile=True)
            return
        if message is None:
            if not self._has_warned:
                self._has_warned = True
                log.warning("MCP server %r writes to its output what is no message, such as %.80r", self._server, line)
        elif "method" not in message:
            answer = self._pending.get(str(message.get("id")))
            if answer is not None and not answer.done():
                self._unsolicited_bytes = 0
                answer.set_result(message)
        elif "id" in message:
            self._send(build_response(message))
        elif message["method"] == "notifications/tools/list_changed":
            self.tool_changes += 1

    def _fail(self, reason: str, *, is_hostile: bool = False) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        self._is_hostile = is_hostile
        if is_hostile:
            log.warning("MCP server %r is ended: %s", self._server, reason)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionBroken(reason))

    def _fail_soon(self) -> None:
        """Its last answer may still be in the pipe."""
        asyncio.get_running_loop().call_later(LAST_OUTPUT_SECONDS, self._fail, "it ended")

    async def _stop_process(self) -> None:
        """Ask the program to end by closing its input, then firmly, then by force."""
        assert self._process is not None
        self._input.close()
        if await _wait_for_event(self._exited, 0 if self._is_hostile else GRACE_SECONDS):
            return
        for signal_name in ("SIGTERM", "SIGKILL"):
            self._send_signal(signal_name)
            if await _wait_for_event(self._exited, GRACE_SECONDS):
                return
        log.warning("MCP server %r: process %d could not be ended", self._server, self._process.get_pid())

    def _send_signal(self, signal_name: str) -> None:
        """To the whole group, since what was started may be a wrapper."""
        assert self._process is not None
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                os.killpg(self._process.get_pid(), signal.Signals[signal_name])


async def _wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
