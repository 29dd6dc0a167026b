"""HTTP requests to a Tellback server: connections, retries, errors, server-sent events, pages."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import httpx2

from tellback import __version__, validation
from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    RemoteError,
    RemoteUnavailableError,
    RequestInProgressError,
)
from tellback.portal import Handle
from tellback.wire.operation import Operation
from tellback.wire.operations import OPERATIONS
from tellback.wire.problems import UNAVAILABLE_STATUSES, error_from_problem

MAX_FRAME_BYTES = 64 * 1024 * 1024

SAFE_METHODS = ("GET", "HEAD")
RETRY_STATUSES = (429, 503)
MAX_RETRY_SECONDS = 20.0
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Open streams use one connection each; the server limits their number."""
STREAM_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
"""The server sends heartbeats, so a minute of silence means a failure."""
MAX_POLLS = 8
"""How many times to poll for the result if an equal request is in progress."""


PAGE_SIZE = 200
"""The page size to request; the server may return fewer items and a cursor."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """A server-sent event."""

    event: str
    data: str
    id: str | None = None


async def parse_events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[ServerEvent, None]:
    """Parse server-sent events from a stream of bytes; comments are skipped.

    Lines are split only at the line breaks of the protocol. httpx-sse is not used: it is made for httpx, not httpx2,
    and does not limit the size of an event.
    """
    buffer, searched = bytearray(), 0
    carriage_return = b""
    async for chunk in chunks:
        chunk = carriage_return + chunk
        carriage_return = b"\r" if chunk.endswith(b"\r") else b""  # perhaps the first half of \r\n
        buffer += chunk[: len(chunk) - len(carriage_return)].replace(b"\r\n", b"\n")
        start = 0
        while (end := buffer.find(b"\n\n", max(start, searched - 1))) >= 0:
            event = _parse_event(_check_size(buffer[start:end]))
            start = searched = end + 2
            if event is not None:
                yield event
        del buffer[:start]
        searched = len(buffer)
        _check_size(buffer)


def _check_size(block: bytearray) -> bytearray:
    """Raise `RemoteError` if an event, or its part read so far, is too large."""
    if len(block) - block.endswith(b"\n") > MAX_FRAME_BYTES:
        raise RemoteError(f"The server sent an event of more than {MAX_FRAME_BYTES} bytes.")
    return block


def _parse_event(block: bytearray) -> ServerEvent | None:
    event, data, id = "message", [], None
    for line in block.decode("utf-8", errors="replace").split("\n"):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            id = value
    return ServerEvent(event, "\n".join(data), id) if data else None


class Transport:
    """Sends requests; shared by all handles of a client."""

    def __init__(
        self, url: str, api_key: str | None, *, seconds: float, retries: int, http: httpx2.AsyncClient | None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"TellbackClient needs the URL of a server, http://… or https://…, got {url!r:.80}."
            )
        self.url = url.rstrip("/")
        self._headers = {"User-Agent": f"tellback-client/{__version__}", "Accept": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._retries = retries
        self._http = http or httpx2.AsyncClient(timeout=httpx2.Timeout(seconds, connect=10.0), limits=LIMITS)
        self._owns_http = http is None

    async def close(self) -> None:
        """Close the connections, unless the HTTP client was passed in."""
        if self._owns_http:
            await self._http.aclose()

    async def call(
        self,
        method: str,
        path: str,
        *,
        user: str | None = None,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        has_own_key: bool = False,
        is_read: bool = False,
    ) -> Any:
        """Send a request and return the JSON of the response. Safe requests are retried.

        A request that changes something gets an idempotency key, unless `has_own_key`: then it contains the caller's
        key, or it is sent only once. A request with `is_read` changes nothing, whatever its method.
        """
        is_read = is_read or method in SAFE_METHODS
        if not is_read and not has_own_key:
            headers = {"Idempotency-Key": f"client-{secrets.token_hex(16)}", **(headers or {})}
        request = self._build_request(method, path, user, query, headers, body)
        has_key = "Idempotency-Key" in request.headers
        for poll in range(MAX_POLLS + 1):
            response = await self._send(request, is_read=is_read, has_key=has_key)
            try:
                return decode_response(response)
            except RequestInProgressError:
                if not has_key or not self._retries or poll == MAX_POLLS:
                    raise
            await asyncio.sleep(min(0.25 * 2**poll, MAX_RETRY_SECONDS))
        raise AssertionError("unreachable")

    async def _send(self, request: httpx2.Request, *, is_read: bool, has_key: bool) -> httpx2.Response:
        """Send a request with retries, and return any response, including the error of the last attempt."""
        may_repeat = is_read or has_key
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                response = await self._http.send(request)
            except httpx2.TransportError as error:
                never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if is_last or not (may_repeat or never_sent):
                    raise _unreachable_error(self.url, error) from error
                await asyncio.sleep(_retry_delay(attempt))
                continue
            if is_last or response.status_code not in RETRY_STATUSES or not (may_repeat or response.status_code == 429):
                return response
            if not is_read and _is_in_doubt(response):  # it may have been processed; the caller must decide
                return response
            await asyncio.sleep(_retry_delay(attempt, response.headers.get("Retry-After")))
        raise AssertionError("unreachable")

    async def stream_events(
        self,
        method: str,
        path: str,
        *,
        user: str | None = None,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[ServerEvent, None]:
        """Yield the events of a stream; an `error` event is raised. Closing the iterator ends the request."""
        headers = {**(headers or {}), "Accept": "text/event-stream"}
        request = self._build_request(method, path, user, query, headers, body, STREAM_TIMEOUT)
        async with (
            self._open_response(request) as response,
            aclosing(parse_events(response.aiter_bytes())) as events,
        ):
            try:
                async for event in events:
                    if event.event == "error":
                        problem = json.loads(event.data)
                        raise error_from_problem(problem, int(problem.get("status", 500)))
                    yield event
            except httpx2.TransportError as error:
                raise _interrupted_error(self.url, error) from error

    @asynccontextmanager
    async def _open_response(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Response, None]:
        try:
            response = await self._http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise _unreachable_error(self.url, error) from error
        try:
            if response.status_code >= 400:
                try:
                    await response.aread()
                except httpx2.TransportError as error:
                    raise _interrupted_error(self.url, error) from error
                decode_response(response)
            yield response
        finally:
            await response.aclose()

    @asynccontextmanager
    async def download(
        self, path: str, *, user: str | None, query: Mapping[str, Any] | None
    ) -> AsyncGenerator[httpx2.Response, None]:
        """Open a response to read in pieces. Raises `RemoteUnavailableError` if the connection breaks."""
        request = self._build_request("GET", path, user, query, timeout=STREAM_TIMEOUT)
        async with self._open_response(request) as response:
            try:
                yield response
            except httpx2.TransportError as error:
                raise _interrupted_error(self.url, error) from error

    def _build_request(
        self,
        method: str,
        path: str,
        user: str | None,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: Any = httpx2.USE_CLIENT_DEFAULT,
    ) -> httpx2.Request:
        all_headers = {**self._headers, **(headers or {})}
        if user is not None:
            all_headers["X-Tellback-User"] = quote(validation.validate_scope_id("user_id", user), safe="")
        content = None
        if body is not None:
            content, all_headers["Content-Type"] = _encode_body(body), "application/json"
        return self._http.build_request(
            method, self.url + path, headers=all_headers, params=_encode_query(query), content=content, timeout=timeout
        )


def decode_response(response: httpx2.Response) -> Any:
    """Return the JSON of a response, or raise its error."""
    if response.status_code == 204:
        return None
    try:
        # json.loads accepts lone surrogates, which stored texts may contain; stricter parsers do not.
        payload = json.loads(response.content)
    except ValueError:
        if response.status_code in UNAVAILABLE_STATUSES:  # usually from a proxy
            raise RemoteUnavailableError(
                f"The server is unavailable: {response.url.host} responded with {response.status_code}.",
                response.status_code,
            ) from None
        raise RemoteError(
            f"The response to {response.request.method} {response.request.url.path} has status {response.status_code}"
            " and is not JSON: check that the URL is a Tellback server.",
            response.status_code,
        ) from None
    if response.status_code < 400:
        return payload
    error = error_from_problem(payload if isinstance(payload, dict) else {}, response.status_code)
    if isinstance(error, NotFoundError) and not error.kind:
        error.kind, error.id = "path", response.request.url.path
    raise error


def _encode_body(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"The text contains a lone surrogate, {error.object[error.start : error.end]!r}, which cannot be encoded"
            " as UTF-8."
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The request cannot be encoded as JSON: {error}.") from None


def _encode_query(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    query = {name: value for name, value in (parameters or {}).items() if value is not None}
    for name, value in query.items():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, str) and not validation.is_valid_id(each):
                raise InvalidArgumentError(f"{name} contains characters that cannot be sent: {each!r:.80}.")
    return query


def _is_in_doubt(response: httpx2.Response) -> bool:
    try:
        return bool((json.loads(response.content).get("data") or {}).get("inDoubt"))
    except (ValueError, AttributeError):  # response of a proxy
        return False


def _retry_delay(attempt: int, retry_after: str | None = None) -> float:
    if retry_after is not None and retry_after.isdecimal():
        return min(float(retry_after), MAX_RETRY_SECONDS)
    return float(min(0.1 * 2**attempt, 2.0))


def _unreachable_error(url: str, error: Exception) -> RemoteUnavailableError:
    return RemoteUnavailableError(f"The server at {url} cannot be reached ({type(error).__name__}): {error}.")


def _interrupted_error(url: str, error: Exception) -> RemoteUnavailableError:
    return RemoteUnavailableError(f"The response of {url} was interrupted ({type(error).__name__}).")


async def list_all(
    transport: Transport,
    path: str,
    decode: Callable[[Any], Any],
    limit: int | None,
    *,
    user: str | None,
    query: Mapping[str, Any],
    cursor: str | None = None,
    is_backwards: bool = False,
) -> list[Any]:
    """List up to `limit` values, or all. Requests at least one item, so that an unknown path raises an error.

    With `is_backwards`, the values of each page are put before those of the previous pages.
    """
    max_items = None if limit is None else validation.validate_count("limit", limit)
    items: list[Any] = []
    while True:
        size = PAGE_SIZE if max_items is None else max(1, min(PAGE_SIZE, max_items - len(items)))
        page = await transport.call("GET", path, user=user, query={**query, "limit": size, "cursor": cursor})
        found = list(map(decode, page["items"]))
        items = [*found, *items] if is_backwards else [*items, *found]
        cursor = page["nextCursor"]
        if cursor is None or (max_items is not None and len(items) >= max_items):
            return items[:max_items]


class RemoteHandle(Handle):
    """Base class of handles for one user's data on a server."""

    def __init__(
        self, transport: Transport, user: str | None, segments: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._transport = transport
        self._user = user
        self._segments = segments

    async def _call(self, operation: Operation[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call an operation of the table, and return its result."""
        try:
            request = operation.encode(args, kwargs, self._segments)
            if operation.page is not None:
                return await list_all(
                    self._transport,
                    request.path,
                    operation.decode_item,
                    request.limit,
                    user=self._user,
                    query=request.query,
                    cursor=request.cursor,
                    is_backwards=operation.page == "newest" and request.query.keys() & {"before", "after"} != {"after"},
                )
            payload = await self._transport.call(
                operation.verb,
                request.path,
                user=self._user,
                body=request.body,
                query=request.query,
                headers=key_header(request.key),
                has_own_key=operation.retry == "once" or operation.takes_key,
                is_read=operation.retry == "read",
            )
        except NotFoundError as error:
            if operation.is_missing(error):
                return None
            raise
        return operation.decode(payload)

    def _path(self, operation: str, **segments: str) -> str:
        """Return the path of an operation without a handle's method."""
        return OPERATIONS[operation].encode((), {}, {**self._segments, **segments}).path

    async def _get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return await self._transport.call("GET", path, user=self._user, query=query)

    async def _post(
        self, path: str, body: Any, headers: Mapping[str, str] | None = None, *, has_own_key: bool = False
    ) -> Any:
        return await self._transport.call(
            "POST", path, user=self._user, body=body, headers=headers, has_own_key=has_own_key
        )

    async def _stream_turn(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Yield the events of a turn. Raises if the stream ends without the result."""
        has_ended = False
        events = self._transport.stream_events(
            "POST", path, user=self._user, body={**body, "stream": True}, headers=headers
        )
        async with aclosing(events):
            async for item in events:
                has_ended = has_ended or item.event == "result"
                yield item.event, json.loads(item.data)
        if not has_ended:
            raise RemoteUnavailableError("The server's stream ended without the turn's result.")


def key_header(key: str | None) -> dict[str, str]:
    """Return the header of an idempotency key, which must be printable ASCII."""
    if key is None:
        return {}
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or key != key.strip():
        raise InvalidArgumentError(f"idempotency_key must be printable ASCII, got {key!r:.80}.")
    return {"Idempotency-Key": key}
