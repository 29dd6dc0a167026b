"""The connection to an OpenSearch server: requests with timeouts, safe retries, and the translation of its errors."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from opensearchpy import AIOHttpConnection, AsyncOpenSearch, ConnectionTimeout, OpenSearchException, TransportError
from opensearchpy import ConnectionError as LostError

from tellback.errors import (
    ConfigurationError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)
from tellback.sessions.storage import ClientConnection
from tellback.sessions.validation import has_unescaped_password

IN_DOUBT_HINT = " The change may have been stored: check before you retry."
_NOT_EXECUTED = ("unavailable_shards_exception", "cluster_block_exception", "master_not_discovered_exception")
"""Errors that the server reports before it runs a request."""

READ_SECONDS = 10.0
"""The timeout of lookups by id. Every change begins with one, so it also detects a dead server."""
WORK_SECONDS = 30.0
_SHARD_TIMEOUT = "8s"
_POOL_SIZE = 32
_RETRY_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Delays between attempts while the server is reachable, but its shards are not ready."""
_BULK_BYTES = 5_000_000
_BULK_ITEMS = 500
_STREAMED_BYTES = 2**16


def is_connection_lost(error: BaseException | None) -> bool:
    """Whether the connection ended, so that another one may work."""
    return isinstance(error, LostError) and not isinstance(error, ConnectionTimeout)


def translate_error(error: TransportError, place: str, *, is_write: bool = False) -> TellbackError:
    """Convert an error to a store error that says what to do. `is_write`: the request must not be repeated."""
    doubt = IN_DOUBT_HINT if is_write else ""
    if isinstance(error, ConnectionTimeout):
        return StoreUnavailableError(f"{place} did not answer in time.{doubt}", in_doubt=is_write)
    if isinstance(error, LostError):
        return StoreUnavailableError(f"{place} cannot be reached: {error.error}.{doubt}", in_doubt=is_write)
    status = error.status_code if isinstance(error.status_code, int) else 0
    info = error.info.get("error") if isinstance(error.info, dict) else None
    return response_error(status, info or str(error.error), place, is_write=is_write)


def response_error(status: int, error: Any, place: str, *, is_write: bool = False) -> TellbackError:
    """Convert an error response, of a request or of one item of a bulk request, to a store error."""
    kind, message = _parse_error(error)
    if kind == "index_not_found_exception":
        return StoreError(f"{place}: {message}. Call initialize() to create missing indices.")
    if "flood-stage" in message or "read-only-allow-delete" in message or "read-only / allow delete" in message:
        return StoreFullError(f"The disk of {place} is full: {message}. Free some space and try again.")
    if kind == "cluster_block_exception" and status == 403:
        return StoreReadOnlyError(f"{place} is read-only: {message}. Remove the block and try again.")
    if status in (401, 403):
        return ConfigurationError(
            f"{place} rejected the login: {message}. Check the user, the password and permissions."
        )
    if status == 429:
        return StoreBusyError(f"{place} is too busy: {message}. Try again.")
    if status in (500, 502, 503, 504):
        in_doubt = is_write and kind not in _NOT_EXECUTED
        return StoreUnavailableError(
            f"{place} failed: {message}.{IN_DOUBT_HINT if in_doubt else ''}", in_doubt=in_doubt
        )
    return StoreError(f"{place}: {message or status}")


def error_type(error: TransportError) -> str:
    """Return the server's name of the error."""
    error_body = error.info.get("error") if isinstance(error.info, dict) else None
    return _parse_error(error_body)[0]


def _parse_error(error: Any) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "", f"{error or ''}"[:500]
    cause = (error.get("root_cause") or [{}])[0]
    message = cause.get("reason") or error.get("reason") or ""
    return str(cause.get("type") or error.get("type") or ""), str(message).strip(" ;")[:500]


class _ChunkedHttpConnection(AIOHttpConnection):
    """The driver's connection, but it sends large bodies in chunks, so that other tasks can run in between."""

    async def perform_request(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        timeout: float | None = None,  # noqa: ASYNC109 -- the driver's signature
        ignore: Collection[int] = (),
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        if body is not None and len(body) > _STREAMED_BYTES:
            body = io.BytesIO(body)
        return await super().perform_request(method, url, params, body, timeout, ignore, headers)


class OpenSearchConnection(ClientConnection[AsyncOpenSearch]):
    """Sends requests to a server with a client."""

    def __init__(self, client: Any) -> None:
        super().__init__(_validate_client(client), _describe_server(client))

    def open(self) -> bool:
        if self._client is not None and self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(
                f"The adapter of {self.place} is in use in another event loop: create one per loop."
            )
        return super().open()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None and client is not self._client_or_url:
            # A closed event loop has ended the connections, but the client must be closed anyway.
            with contextlib.suppress(RuntimeError) if self._is_loop_closed() else contextlib.nullcontext():
                await client.close()

    async def leave_closed_loop(self) -> None:
        """Drop the client of a closed event loop."""
        if self._is_loop_closed():
            await self.close()

    def _is_loop_closed(self) -> bool:
        return self._loop is not None and self._loop.is_closed()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        seconds: float = READ_SECONDS,
        accept: Collection[int] = (),
    ) -> Any:
        """Send a request that is safe to repeat, and retry it."""
        for attempt in range(len(_RETRY_DELAYS) + 1):
            try:
                return await self._send(method, path, body, params, seconds, accept)
            except TransportError as error:
                is_retryable = error.status_code == 503 and attempt < len(_RETRY_DELAYS)
                if not is_retryable and not (is_connection_lost(error) and attempt == 0):
                    raise translate_error(error, self.place) from error
                await asyncio.sleep(_RETRY_DELAYS[attempt] if is_retryable else 0)
        raise AssertionError("the last attempt returns or raises")

    async def request_once(
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, Any], accept: Collection[int] = ()
    ) -> Any:
        """Send a request that must not be repeated. If it may have taken effect, the error's `in_doubt` is True."""
        try:
            parameters = {"timeout": _SHARD_TIMEOUT, **params}
            return await self._send(method, path, body, parameters, WORK_SECONDS, accept)
        except TransportError as error:
            raise translate_error(error, self.place, is_write=True) from error

    async def bulk(
        self, actions: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]], refresh: str, index: str
    ) -> int:
        """Run many repeatable actions in one index: `index` or `delete`, the metadata, and the document.

        Return how many succeeded. Documents to delete may be missing or changed already.
        """
        done = 0
        for lines in _bulk_batches(actions):
            answer = await self.request(
                "POST",
                f"/{index}/_bulk",
                body="".join(lines),
                params={"refresh": refresh, "timeout": _SHARD_TIMEOUT},
                seconds=WORK_SECONDS,
            )
            for item in answer["items"]:
                ((verb, outcome),) = item.items()
                if outcome["status"] < 300:
                    done += 1
                elif verb != "delete" or outcome["status"] not in (404, 409):
                    raise response_error(outcome["status"], outcome.get("error"), self.place)
        return done

    async def get_many(self, index: str, documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the current documents with these ids; `found` is whether each exists."""
        requested = list(documents)
        if not requested:
            return []
        answer = await self.request("POST", f"/{index}/_mget", body={"docs": requested}, seconds=WORK_SECONDS)
        for each in answer["docs"]:
            if "error" in each:
                raise response_error(503, each["error"], self.place)
        found: list[dict[str, Any]] = answer["docs"]
        return found

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        params: Mapping[str, Any] | None,
        seconds: float,
        accept: Collection[int],
    ) -> Any:
        client = self.require_open()
        text = body if body is None or isinstance(body, str) else dump_json(body)
        perform = client.transport.perform_request
        try:
            answer = await perform(method, path, params=dict(params or {}), body=text, timeout=seconds, ignore=accept)
        except TransportError:
            raise
        except OpenSearchException as error:
            raise StoreError(f"{self.place} sent no JSON: check that it is an OpenSearch server.") from error
        if not isinstance(answer, dict | bool):
            raise StoreError(f"{self.place} answered {answer!r:.80}: check that it is an OpenSearch server.")
        return answer

    def _create_client(self, url: str) -> AsyncOpenSearch:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host: dict[str, Any] = {"host": parts.hostname, "port": parts.port or (443 if secure else 9200)}
        if secure:
            host["use_ssl"] = True
        if parts.path.strip("/"):
            host["url_prefix"] = parts.path
        if parts.username is not None:
            host["http_auth"] = (unquote(parts.username), unquote(parts.password or ""))
        return AsyncOpenSearch(
            [host],
            connection_class=_ChunkedHttpConnection,
            max_retries=0,
            timeout=WORK_SECONDS,
            pool_maxsize=_POOL_SIZE,
        )


def dump_json(value: Any) -> str:
    """Encode JSON to send. Strings were validated or are ASCII, so encoding cannot fail."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _describe_server(target: AsyncOpenSearch | str) -> str:
    """Return the server's name for errors, without user and password.

    >>> _describe_server("https://app:secret@search.example:9200/")
    'https://search.example:9200'
    """
    if not isinstance(target, str):
        return "OpenSearch"
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _validate_client(target: Any) -> AsyncOpenSearch | str:
    """Return an asynchronous client, or a URL to create one for."""
    if isinstance(target, AsyncOpenSearch):
        return target
    if not isinstance(target, str):
        raise ConfigurationError(f"OpenSearchAdapter needs an AsyncOpenSearch or a URL, got a {type(target).__name__}.")
    try:
        parts = urlsplit(target)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or has_unescaped_password(target):
        # The URL may contain a password.
        raise ConfigurationError(
            "OpenSearchAdapter needs a URL such as https://user:password@search.example:9200, with special"
            " characters in the password percent-encoded."
        )
    return target


def _bulk_batches(
    actions: Iterable[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]],
) -> Iterable[list[str]]:
    """Yield the lines of each request: servers reject requests that are too large."""
    lines: list[str] = []
    size = 0
    for verb, metadata, document in actions:
        text = dump_json({verb: metadata}) + "\n" + ("" if document is None else dump_json(document) + "\n")
        length = len(text.encode())
        if lines and (len(lines) == _BULK_ITEMS or size + length > _BULK_BYTES):
            yield lines
            lines, size = [], 0
        lines.append(text)
        size += length
    if lines:
        yield lines
