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

from tellback.tools.mcp.options import Address, SessionGone
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

MAX_ASIDE = 20
TELL_SECONDS = 5.0
MAX_REDIRECTS = 3
_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)

log = logging.getLogger("tellback.tools.mcp")


class HttpWire(Wire):
    """Messages as bodies of HTTP requests. How long to wait is for the caller to say."""

    def __init__(self, address: Address, clean: Clean) -> None:
        super().__init__(clean)
        self._address = address
        self._session: str | None = None
        self._version: str | None = None
        self._aside: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> HttpWire:
        self._url = httpx2.URL(self._address.url)
        self._client = httpx2.AsyncClient(
            # A packed answer could be small on the way and huge here.
            headers={**(self._address.headers or {}), "accept-encoding": "identity"},
            timeout=httpx2.Timeout(30, read=None, pool=None),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.ended.set()
        for task in self._aside:
            task.cancel()
        try:
            await asyncio.gather(*self._aside, return_exceptions=True)
            if self._session is not None:
                await self._tell("DELETE", b"", self._headers(None), 1)
        finally:
            await self._client.aclose()

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        headers = self._headers((opts or {}).get("headers"))
        await self._tell("POST", encode(message(method, params)), headers, TELL_SECONDS)

    async def _ask(self, request: dict[str, Any], opts: CallOptions) -> dict[str, Any]:
        if self.ended.is_set():
            raise Broken("it was closed", sent=False)
        headers = self._headers(opts.get("headers"))
        try:
            return await self._exchange(request, headers)
        except asyncio.CancelledError:
            # In the newer protocol, that the request has ended is enough.
            if opts.get("cancel_on_abandon", True) and self._version not in MODERN_PROTOCOL_VERSIONS:
                self._tell_aside(cancelled(request))
            raise
        except _NOT_SENT as error:
            raise Broken(_named(error), sent=False) from error
        except httpx2.HTTPError as error:
            raise Broken(_named(error)) from error

    async def _exchange(self, request: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        """The answer, wherever it comes: in the body, as an event, or as an event of a stream that goes on later."""
        events = _Events()
        async with self._stream("POST", headers, encode(request)) as response:
            if response.is_error:
                raise await self._refusal(response, headers)
            if request["method"] == "initialize" and _SESSION in response.headers:
                self._session = response.headers[_SESSION]
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind == "application/json":
                return _read(await _whole(response))
            if kind != "text/event-stream":
                status = response.status_code
                raise MCPError(types.INVALID_REQUEST, f"HTTP status {status}, with a body of type {kind!r:.80}")
            answer = await self._listen(response, events)
        while answer is None:
            answer = await self._go_on(events)
        return answer

    async def _go_on(self, events: _Events) -> dict[str, Any] | None:
        """Take up a stream of events where it broke off."""
        if not events.last_id:
            raise Broken("the answer broke off")
        await asyncio.sleep(events.pause)
        headers = {**self._headers(None), "last-event-id": events.last_id}
        try:
            async with self._stream("GET", headers, b"") as response:
                if response.is_error:
                    raise Broken(f"the answer broke off, and could not be taken up: HTTP status {response.status_code}")
                return await self._listen(response, events)
        except _NOT_SENT as error:
            raise Broken(_named(error)) from error

    async def _listen(self, response: httpx2.Response, events: _Events) -> dict[str, Any] | None:
        """The answer among the events of a stream, or nothing if the stream ends before it."""
        try:
            async for event in httpx2.EventSource(response, max_event_size=MAX_MESSAGE):
                events.note(event)
                if not event.data:
                    continue
                heard = _read(event.data.encode())
                if "method" not in heard:
                    return heard
                if "id" in heard:
                    self._tell_aside(reply_to(heard))
        except httpx2.SSEError:
            raise Broken(TOO_LONG) from None
        except httpx2.TransportError as error:
            if not events.last_id:
                raise
            log.debug("a stream of events broke off, and is taken up again: %s", error)
        return None

    @asynccontextmanager
    async def _stream(self, method: str, headers: dict[str, str], content: bytes) -> AsyncIterator[httpx2.Response]:
        """A request and its answer; redirects are followed only within the server's own address."""
        for _ in range(MAX_REDIRECTS):
            async with self._client.stream(method, self._url, headers=headers, content=content) as response:
                if response.headers.get("content-encoding", "identity") != "identity":
                    raise Broken("it sent a packed answer, which was not asked for")
                moved = response.next_request
                if moved is None:
                    yield response
                    return
                if moved.method != method or not _same_place(self._url, moved.url):
                    to = moved.url.copy_with(userinfo=b"", query=None, fragment=None)
                    raise MCPError(types.INVALID_REQUEST, f"it redirects to {to}, which is not followed: use that url")
            self._url = moved.url
        raise MCPError(types.INVALID_REQUEST, "it redirects in a circle")

    async def _refusal(self, response: httpx2.Response, headers: Mapping[str, str]) -> Exception:
        """What an error status means: the server's own error where the body holds one."""
        said = decode(await _whole(response)) or {}
        error = said.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if response.status_code == 404 and _SESSION in headers and code != types.METHOD_NOT_FOUND:
            self._session = None
            self.ended.set()
            return SessionGone()
        text = f"HTTP status {response.status_code}"
        if isinstance(error, dict) and isinstance(code, int):
            return MCPError(code, f"{error.get('message', '')!s:.1000} ({text})", error.get("data"))
        return MCPError(types.METHOD_NOT_FOUND if response.status_code == 404 else types.INTERNAL_ERROR, text)

    def _headers(self, stamped: Mapping[str, str] | None) -> dict[str, str]:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self._session is not None:
            headers[_SESSION] = self._session
        headers.update({name.lower(): value for name, value in (stamped or {}).items()})
        if stamped is None and self._version is not None:
            headers[_VERSION] = self._version
        self._version = headers.get(_VERSION, self._version)
        return headers

    async def _tell(self, method: str, content: bytes, headers: dict[str, str], seconds: float) -> None:
        """Send what has no answer, and wait only a little until the server has taken it."""
        try:
            async with asyncio.timeout(seconds), self._stream(method, headers, content) as response:
                await _whole(response)
        except (TimeoutError, httpx2.HTTPError, MCPError, Broken) as error:
            log.debug("an MCP server did not take a %s: %r", method, error)

    def _tell_aside(self, sent: dict[str, Any]) -> None:
        if len(self._aside) < MAX_ASIDE and not self.ended.is_set():
            task = asyncio.create_task(self._tell("POST", encode(sent), self._headers(None), TELL_SECONDS))
            self._aside.add(task)
            task.add_done_callback(self._aside.discard)


class _Events:
    """Where to go on with a stream of events that ends early."""

    def __init__(self) -> None:
        self.last_id = ""
        self.pause = 1.0

    def note(self, event: httpx2.ServerSentEvent) -> None:
        if len(event.id) <= 1_000 and event.id.isascii() and event.id.isprintable():
            self.last_id = event.id or self.last_id
        if event.retry is not None:
            self.pause = min(max(event.retry / 1_000, 0.1), 30.0)


async def _whole(response: httpx2.Response) -> bytes:
    found = bytearray()
    async for chunk in response.aiter_raw():
        found += chunk
        if len(found) > MAX_MESSAGE:
            raise Broken(TOO_LONG)
    return bytes(found)


def _read(body: bytes) -> dict[str, Any]:
    heard = decode(body)
    if heard is None:
        raise MCPError(types.PARSE_ERROR, f"the answer is no JSON object: {body[:80]!r}")
    return heard


def _same_place(one: httpx2.URL, other: httpx2.URL) -> bool:
    safer = one.scheme == "http" and other.scheme == "https" and one.port is other.port is None
    return one.host == other.host and ((one.scheme, one.port) == (other.scheme, other.port) or safer)


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".: ")[:1_000]
