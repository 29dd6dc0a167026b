"""The transports of an MCP session, over stdio or streamable HTTP, with size limits for all messages.

The SDK's own transports accept messages of any size, keep reading for cancelled requests, and forward our trace
context. An `McpTransport` does none of that."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import re
import shutil
import signal
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import anyio.abc
import httpx2
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tellback.tools.mcp.server import HttpTarget, SessionLost, StdioTarget, start_task

log = logging.getLogger("tellback.tools.mcp")

MAX_MESSAGE = 16 * 1024 * 1024
MAX_VALUES = 500_000
TOO_LONG = f"it sent a message of more than {MAX_MESSAGE // 1024 // 1024} MB"

MAX_LINE = 1_000
MAX_LINES_A_SECOND = 100
MAX_UNSOLICITED_BYTES = 2 * MAX_MESSAGE
GRACE_SECONDS = 2.0
LAST_OUTPUT_SECONDS = 0.2

MAX_BACKGROUND_TASKS = 20
SEND_TIMEOUT_SECONDS = 5.0
MAX_REDIRECTS = 3
_SESSION_HEADER = "mcp-session-id"
_VERSION_HEADER = "mcp-protocol-version"
_NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)

AnswerFilter = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Limits and validates the answer to a method before anything else reads it."""

_LONE_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class ConnectionBroken(Exception):
    """No answer can arrive any more; the message contains the reason."""

    def __init__(self, reason: str, *, was_sent: bool = True) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class McpTransport(ABC):
    """The transport of one connection, used by the SDK's session.

    `ended` is set when nothing can be sent any more; `tool_changes` counts the tool changes that the server announced.
    """

    def __init__(self, filter_answer: AnswerFilter) -> None:
        self.ended = asyncio.Event()
        self.tool_changes = 0
        self._filter_answer = filter_answer
        self._request_ids = itertools.count(1)

    @abstractmethod
    async def __aenter__(self) -> McpTransport: ...

    @abstractmethod
    async def __aexit__(self, *_: object) -> None: ...

    @abstractmethod
    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification; failures are ignored."""

    @abstractmethod
    async def _request(self, request: dict[str, Any], opts: CallOptions) -> dict[str, Any]:
        """Send a request and return the answer message; raise `ConnectionBroken` if none can arrive."""

    def describe_stderr(self) -> str:
        """Return a sentence with the server's last stderr output, for connection errors."""
        return ""

    async def run(
        self,
        on_request: Any,
        on_notify: Any,
        on_notify_intercept: Any = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Wait until the transport ends. The transport itself handles the server's requests and notifications."""
        task_status.started()
        await self.ended.wait()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Return the result of a request.

        Raises `MCPError` if the server rejects the request or does not answer in time, and `ConnectionBroken` if no
        answer can arrive.
        """
        opts = opts or {}
        request = {"id": next(self._request_ids), **build_message(method, params)}
        try:
            async with asyncio.timeout(opts.get("timeout")):
                answer = await self._request(request, opts)
        except TimeoutError:
            raise MCPError(types.REQUEST_TIMEOUT, f"{method} was not answered in time") from None
        return await self._filter_answer(method, _extract_result(answer))


def build_message(method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Build a message; empty `params` are omitted."""
    return {"jsonrpc": "2.0", "method": method, **({"params": dict(params)} if params else {})}


def build_cancellation(request: Mapping[str, Any]) -> dict[str, Any]:
    """Build the message that cancels a request on the server."""
    return build_message("notifications/cancelled", {"requestId": request["id"], "reason": "cancelled by the client"})


def build_response(request: Mapping[str, Any]) -> dict[str, Any]:
    """Build the response to a request of the server: success for a ping, an error for anything else."""
    if request["method"] == "ping":
        return {"jsonrpc": "2.0", "id": request["id"], "result": {}}
    error = {"code": types.METHOD_NOT_FOUND, "message": "Method not found"}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message as one line of JSON, without a line break."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode(data: bytes) -> dict[str, Any] | None:
    """Decode a message, or return None if it is not a JSON object. Invalid characters and numbers are replaced.

    Raises `ConnectionBroken` for a message that would take too long to parse.
    """
    if data.count(b"[") + data.count(b"{") > MAX_VALUES:
        raise ConnectionBroken(f"it sent a message of more than {MAX_VALUES} values")
    try:
        parsed = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
        if _LONE_SURROGATE.search(data):
            parsed = json.loads(json.dumps(parsed, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _extract_result(answer: Mapping[str, Any]) -> dict[str, Any]:
    error, result = answer.get("error"), answer.get("result")
    if isinstance(error, dict):
        code = error.get("code")
        error_code = code if isinstance(code, int) else types.INTERNAL_ERROR
        raise MCPError(error_code, str(error.get("message", ""))[:1_000], error.get("data"))
    if not isinstance(result, dict):
        raise MCPError(types.PARSE_ERROR, "the answer contains neither a result nor an error")
    return result


class StderrLog:
    """Logs stderr lines with the server's name, rate-limited, and stores the last ones."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._partial_line = b""
        self._current_second = 0
        self._logged_lines = 0
        self._skipped_lines = 0
        self.last_lines: deque[str] = deque(maxlen=5)

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._partial_line + data).split(b"\n")
        self._partial_line = rest[:MAX_LINE]  # keep only the beginning of an endless line
        for line in lines:
            self._log_line(line)

    def connection_lost(self, exc: Exception | None) -> None:
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
            log.info("%s: %d more lines were skipped", self._server, self._skipped_lines)
            self._skipped_lines = 0


class StdioTransport(McpTransport, asyncio.SubprocessProtocol):
    """Exchanges messages as lines. An overlong line or too much unrequested output breaks the connection."""

    _process: asyncio.SubprocessTransport

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
        self._fail("the connection was closed")
        try:
            await self._stop_process()
            # A remaining child of the program may keep the pipes open.
            await _wait_for_event(self._closed, LAST_OUTPUT_SECONDS)
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
            raise ConnectionBroken("the process has ended")
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
        return self._process.get_pipe_transport(0)

    def _send(self, message: dict[str, Any]) -> None:
        pipe = self._input
        if pipe.is_closing() or self.ended.is_set():
            return
        if pipe.get_write_buffer_size() > MAX_MESSAGE:
            self._fail("it no longer reads its input", is_hostile=True)
            return
        pipe.write(encode(message) + b"\n")

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Receive output of the program; after the end it is discarded, so that the program can exit."""
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
            self._fail("it sent too much unrequested output", is_hostile=True)

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
                log.warning("MCP server %r writes invalid messages to its output, such as %.80r", self._server, line)
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
            log.warning("MCP server %r is stopped: %s", self._server, reason)
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(ConnectionBroken(reason))

    def _fail_soon(self) -> None:
        """Fail after a delay, because the last answer may still be in the pipe."""
        asyncio.get_running_loop().call_later(LAST_OUTPUT_SECONDS, self._fail, "the process has ended")

    async def _stop_process(self) -> None:
        """Stop the program: close its input, then send SIGTERM, then SIGKILL."""
        self._input.close()
        if await _wait_for_event(self._exited, 0 if self._is_hostile else GRACE_SECONDS):
            return
        for signal_name in ("SIGTERM", "SIGKILL"):
            self._send_signal(signal_name)
            if await _wait_for_event(self._exited, GRACE_SECONDS):
                return
        log.warning("MCP server %r: process %d could not be stopped", self._server, self._process.get_pid())

    def _send_signal(self, signal_name: str) -> None:
        """Send a signal to the whole process group, because the command may be a wrapper."""
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


class HttpTransport(McpTransport):
    """Exchanges messages as bodies of HTTP requests. Callers set the timeouts."""

    def __init__(self, target: HttpTarget, filter_answer: AnswerFilter) -> None:
        super().__init__(filter_answer)
        self._target = target
        self._session_id: str | None = None
        self._protocol_version: str | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> HttpTransport:
        self._url = httpx2.URL(self._target.url)
        self._client = httpx2.AsyncClient(
            # A compressed answer could be huge when unpacked.
            headers={**(self._target.headers or {}), "accept-encoding": "identity"},
            timeout=httpx2.Timeout(30, read=None, pool=None),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ended.set()
        for task in self._background_tasks:
            task.cancel()
        try:
            await asyncio.gather(*self._background_tasks, return_exceptions=True)
            if self._session_id is not None:
                await self._send("DELETE", b"", self._build_headers(None), 1)
        finally:
            await self._client.aclose()

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        headers = self._build_headers((opts or {}).get("headers"))
        await self._send("POST", encode(build_message(method, params)), headers, SEND_TIMEOUT_SECONDS)

    async def _request(self, request: dict[str, Any], opts: CallOptions) -> dict[str, Any]:
        if self.ended.is_set():
            raise ConnectionBroken("the connection was closed", was_sent=False)
        headers = self._build_headers(opts.get("headers"))
        try:
            return await self._exchange(request, headers)
        except asyncio.CancelledError:
            # In the newer protocol, closing the request cancels the call.
            if opts.get("cancel_on_abandon", True) and self._protocol_version not in MODERN_PROTOCOL_VERSIONS:
                self._send_in_background(build_cancellation(request))
            raise
        except _NOT_SENT_ERRORS as error:
            raise ConnectionBroken(_format_error(error), was_sent=False) from error
        except httpx2.HTTPError as error:
            raise ConnectionBroken(_format_error(error)) from error

    async def _exchange(self, request: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        """Return the answer from the body, from an event stream, or from a resumed event stream."""
        cursor = _EventCursor()
        async with self._stream("POST", headers, encode(request)) as response:
            if response.is_error:
                raise await self._error_from_response(response, headers)
            if request["method"] == "initialize" and _SESSION_HEADER in response.headers:
                self._session_id = response.headers[_SESSION_HEADER]
            content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if content_type == "application/json":
                return _parse_message(await _read_body(response))
            if content_type != "text/event-stream":
                status = response.status_code
                raise MCPError(types.INVALID_REQUEST, f"HTTP status {status}, with a body of type {content_type!r:.80}")
            answer = await self._read_events(response, cursor)
        while answer is None:
            answer = await self._resume(cursor)
        return answer

    async def _resume(self, cursor: _EventCursor) -> dict[str, Any] | None:
        """Resume a broken event stream after the last event."""
        if not cursor.last_id:
            raise ConnectionBroken("the answer was interrupted")
        await asyncio.sleep(cursor.retry_delay)
        headers = {**self._build_headers(None), "last-event-id": cursor.last_id}
        try:
            async with self._stream("GET", headers, b"") as response:
                if response.is_error:
                    raise ConnectionBroken(
                        f"the answer was interrupted and could not be resumed: HTTP status {response.status_code}"
                    )
                return await self._read_events(response, cursor)
        except _NOT_SENT_ERRORS as error:
            raise ConnectionBroken(_format_error(error)) from error

    async def _read_events(self, response: httpx2.Response, cursor: _EventCursor) -> dict[str, Any] | None:
        """Return the answer from an event stream, or None if the stream ends before it."""
        try:
            async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE):
                cursor.record(event)
                if not event.data:
                    continue
                message = _parse_message(event.data.encode())
                if "method" not in message:
                    return message
                if "id" in message:
                    self._send_in_background(build_response(message))
        except httpx2.SSEError:
            raise ConnectionBroken(TOO_LONG) from None
        except httpx2.TransportError as error:
            if not cursor.last_id:
                raise
            log.debug("An MCP event stream was interrupted and will be resumed: %s", error)
        return None

    @asynccontextmanager
    async def _stream(self, method: str, headers: dict[str, str], content: bytes) -> AsyncIterator[httpx2.Response]:
        """Send a request and yield the response; follow redirects only within the server's origin."""
        for _ in range(MAX_REDIRECTS):
            async with self._client.stream(method, self._url, headers=headers, content=content) as response:
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise ConnectionBroken("it sent a compressed answer, which was not requested")
                redirect = response.next_request
                if redirect is None:
                    yield response
                    return
                if redirect.method != method or not _is_same_origin(self._url, redirect.url):
                    location = redirect.url.copy_with(userinfo=b"", query=None, fragment=None)
                    raise MCPError(
                        types.INVALID_REQUEST, f"it redirects to {location}, which is not followed: use that URL"
                    )
            self._url = redirect.url
        raise MCPError(types.INVALID_REQUEST, "too many redirects")

    async def _error_from_response(self, response: httpx2.Response, headers: Mapping[str, str]) -> Exception:
        """Return the error for an error status: the server's error from the body, if there is one."""
        body = decode(await _read_body(response)) or {}
        error = body.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if response.status_code == 404 and _SESSION_HEADER in headers and code != types.METHOD_NOT_FOUND:
            self._session_id = None
            self.ended.set()
            return SessionLost()
        text = f"HTTP status {response.status_code}"
        if isinstance(error, dict) and isinstance(code, int):
            return MCPError(code, f"{error.get('message', '')!s:.1000} ({text})", error.get("data"))
        return MCPError(types.METHOD_NOT_FOUND if response.status_code == 404 else types.INTERNAL_ERROR, text)

    def _build_headers(self, request_headers: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self._session_id is not None:
            headers[_SESSION_HEADER] = self._session_id
        headers.update({name.lower(): value for name, value in (request_headers or {}).items()})
        if request_headers is None and self._protocol_version is not None:
            headers[_VERSION_HEADER] = self._protocol_version
        self._protocol_version = headers.get(_VERSION_HEADER, self._protocol_version)
        return headers

    async def _send(self, method: str, content: bytes, headers: dict[str, str], seconds: float) -> None:
        """Send a message without an answer, and wait a short time until the server has accepted it."""
        try:
            async with asyncio.timeout(seconds), self._stream(method, headers, content) as response:
                await _read_body(response)
        except (TimeoutError, httpx2.HTTPError, MCPError, ConnectionBroken) as error:
            log.debug("An MCP server did not accept a %s: %r", method, error)

    def _send_in_background(self, message: dict[str, Any]) -> None:
        if len(self._background_tasks) < MAX_BACKGROUND_TASKS and not self.ended.is_set():
            headers = self._build_headers(None)
            start_task(self._send("POST", encode(message), headers, SEND_TIMEOUT_SECONDS), self._background_tasks)


class _EventCursor:
    """The position for resuming an event stream that ends early."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_delay = 1.0

    def record(self, event: httpx2.ServerSentEvent) -> None:
        if len(event.id) <= 1_000 and event.id.isascii() and event.id.isprintable():
            self.last_id = event.id or self.last_id
        if event.retry is not None:
            self.retry_delay = min(max(event.retry / 1_000, 0.1), 30.0)


async def _read_body(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > MAX_MESSAGE:
            raise ConnectionBroken(TOO_LONG)
    return bytes(body)


def _parse_message(body: bytes) -> dict[str, Any]:
    message = decode(body)
    if message is None:
        raise MCPError(types.PARSE_ERROR, f"the answer is not a JSON object: {body[:80]!r}")
    return message


def _is_same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    is_upgrade = one.scheme == "http" and other.scheme == "https" and one.port is other.port is None
    return one.host == other.host and ((one.scheme, one.port) == (other.scheme, other.port) or is_upgrade)


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".: ")[:1_000]
