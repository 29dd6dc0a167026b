"""A server over streamable HTTP: one POST a request, which ends when nobody waits for its answer any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import mcp_types as types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tellback.tools.mcp.server import HttpTarget, SessionLost
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

MAX_BACKGROUND_TASKS = 20
SEND_TIMEOUT_SECONDS = 5.0
MAX_REDIRECTS = 3
_SESSION_HEADER = "mcp-session-id"
_VERSION_HEADER = "mcp-protocol-version"
_NOT_SENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)


class HttpTransport(McpTransport):
    """Messages as bodies of HTTP requests. How long to wait is for the caller to say."""

    def __init__(self, target: HttpTarget, filter_answer: AnswerFilter) -> None:
        super().__init__(filter_answer)
        self._target = target
        self._session_id: str | None = None
        self._protocol_version: str | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> HttpTransport:
        self._url = httpx2.URL(self._target.url)
        self._client = httpx2.AsyncClient(
            # A packed answer could be small on the way and huge here.
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
            raise ConnectionBroken("it was closed", was_sent=False)
        headers = self._build_headers(opts.get("headers"))
        try:
            return await self._exchange(request, headers)
        except asyncio.CancelledError:
            # In the newer protocol, that the request has ended is enough.
            if opts.get("cancel_on_abandon", True) and self._protocol_version not in MODERN_PROTOCOL_VERSIONS:
                self._send_in_background(build_cancellation(request))
            raise
        except _NOT_SENT_ERRORS as error:
            raise ConnectionBroken(_format_error(error), was_sent=False) from error
        except httpx2.HTTPError as error:
            raise ConnectionBroken(_format_error(error)) from error

    async def _exchange(self, request: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        """The answer, wherever it comes: in the body, as an event, or as an event of a stream that goes on later."""
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
        """Take up a stream of events where it broke off."""
        if not cursor.last_id:
            raise ConnectionBroken("the answer broke off")
        await asyncio.sleep(cursor.retry_delay)
        headers = {**self._build_headers(None), "last-event-id": cursor.last_id}
        try:
            async with self._stream("GET", headers, b"") as response:
                if response.is_error:
                    raise ConnectionBroken(
                        f"the answer broke off, and could not be taken up: HTTP status {response.status_code}"
                    )
                return await self._read_events(response, cursor)
        except _NOT_SENT_ERRORS as error:
            raise ConnectionBroken(_format_error(error)) from error

    async def _read_events(self, response: httpx2.Response, cursor: _EventCursor) -> dict[str, Any] | None:
        """The answer among the events of a stream, or nothing if the stream ends before it."""
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
            log.debug("a stream of events broke off, and is taken up again: %s", error)
        return None

    @asynccontextmanager
    async def _stream(self, method: str, headers: dict[str, str], content: bytes) -> AsyncIterator[httpx2.Response]:
        """A request and its answer; redirects are followed only within the server's own address."""
        for _ in range(MAX_REDIRECTS):
            async with self._client.stream(method, self._url, headers=headers, content=content) as response:
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise ConnectionBroken("it sent a packed answer, which was not asked for")
                redirect = response.next_request
                if redirect is None:
                    yield response
                    return
                if redirect.method != method or not _is_same_origin(self._url, redirect.url):
                    location = redirect.url.copy_with(userinfo=b"", query=None, fragment=None)
                    raise MCPError(
                        types.INVALID_REQUEST, f"it redirects to {location}, which is not followed: use that url"
                    )
            self._url = redirect.url
        raise MCPError(types.INVALID_REQUEST, "it redirects in a circle")

    async def _error_from_response(self, response: httpx2.Response, headers: Mapping[str, str]) -> Exception:
        """What an error status means: the server's own error where the body holds one."""
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
        """Send what has no answer, and wait only a little until the server has taken it."""
        try:
            async with asyncio.timeout(seconds), self._stream(method, headers, content) as response:
                await _read_body(response)
        except (TimeoutError, httpx2.HTTPError, MCPError, ConnectionBroken) as error:
            log.debug("an MCP server did not take a %s: %r", method, error)

    def _send_in_background(self, message: dict[str, Any]) -> None:
        if len(self._background_tasks) < MAX_BACKGROUND_TASKS and not self.ended.is_set():
            task = asyncio.create_task(
                self._send("POST", encode(message), self._build_headers(None), SEND_TIMEOUT_SECONDS)
            )
            self._background_tasks.add(task)
            task.add_done_callback(self._background_tasks.discard)


class _EventCursor:
    """Where to go on with a stream of events that ends early."""

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
        raise MCPError(types.PARSE_ERROR, f"the answer is no JSON object: {body[:80]!r}")
    return message


def _is_same_origin(one: httpx2.URL, other: httpx2.URL) -> bool:
    is_upgrade = one.scheme == "http" and other.scheme == "https" and one.port is other.port is None
    return one.host == other.host and ((one.scheme, one.port) == (other.scheme, other.port) or is_upgrade)


def _format_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".: ")[:1_000]
