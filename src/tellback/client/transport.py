"""Requests to a server: credentials, retries that are harmless, and errors as the in-process calls raise them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2

from tellback import __version__
from tellback.client.frames import Frame, frames_of
from tellback.conversations import checks
from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    RemoteError,
    RemoteUnavailableError,
    RequestInProgressError,
)
from tellback.wire.problems import UNAVAILABLE, error_of

SAFE = ("GET", "HEAD")
AGAIN = (429, 503)
LONGEST_WAIT = 20.0
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
"""Each stream has a connection to itself while it is open: how many there may be, the server says."""
LOOKS = 8
"""How often one asks, with longer and longer pauses, for what came of the same request, which is being answered."""


def path_of(*parts: str) -> str:
    """A path of which each part is one, whatever is in it.

    >>> path_of("ai-memory", "atoms", "a/b")
    '/ai-memory/atoms/a%2Fb'
    """
    return "/" + "/".join(quote(part, safe="-_.~") if part not in (".", "..") else "%2E" * len(part) for part in parts)


class Transport:
    """Sends requests. One is shared by all handles of a client."""

    def __init__(
        self, url: str, api_key: str | None, *, seconds: float, retries: int, http: httpx2.AsyncClient | None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"TellbackClient takes the address of a server, http://… or https://…, not {url!r:.80}."
            )
        self.url = url.rstrip("/")
        self._headers = {"User-Agent": f"tellback-client/{__version__}", "Accept": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._retries = retries
        self._http = http or httpx2.AsyncClient(timeout=httpx2.Timeout(seconds, connect=10.0), limits=LIMITS)
        self._is_ours = http is None

    async def close(self) -> None:
        """Close the connections, unless they were given."""
        if self._is_ours:
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
        is_native: bool = False,
        is_read: bool = False,
    ) -> Any:
        """The JSON of an answer. What may be sent twice is, if there was no answer.

        A request that changes something has an idempotency key, unless it `is_native`: then the caller's own is in it,
        or it is sent once. One that `is_read` changes nothing, whatever its method.
        """
        given, is_read = self._given(user, headers), is_read or method in SAFE
        if not is_read and not is_native:
            given.setdefault("Idempotency-Key", f"client-{secrets.token_hex(16)}")
        has_key, content = "Idempotency-Key" in given, _content(body, given)
        for look in range(LOOKS + 1):
            answer = await self._answered(method, path, given, _query(query), content, is_read=is_read, has_key=has_key)
            try:
                return read(answer)
            except RequestInProgressError:
                if not has_key or not self._retries or look == LOOKS:
                    raise
            await asyncio.sleep(min(0.25 * 2**look, LONGEST_WAIT))
        raise AssertionError("unreachable")

    async def _answered(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        query: Any,
        content: bytes | None,
        *,
        is_read: bool,
        has_key: bool,
    ) -> httpx2.Response:
        """Any answer; one that says to come again is the last one's."""
        may_repeat = is_read or has_key
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                answer = await self._http.request(
                    method, self.url + path, headers=headers, params=query, content=content
                )
            except httpx2.TransportError as error:
                never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if last or not (may_repeat or never_sent):
                    raise _unreachable(self.url, error) from error
                await asyncio.sleep(_pause(attempt))
                continue
            if last or answer.status_code not in AGAIN or not (may_repeat or answer.status_code == 429):
                return answer
            if not is_read and _is_in_doubt(answer):  # it may have been done: that is for the caller to see
                return answer
            await asyncio.sleep(_pause(attempt, answer.headers.get("Retry-After")))
        raise AssertionError("unreachable")

    async def found(self, method: str, path: str, **more: Any) -> Any:
        """The same, or None if there is nothing of that id."""
        try:
            return await self.call(method, path, **more)
        except NotFoundError:
            return None

    async def frames(
        self,
        method: str,
        path: str,
        *,
        user: str | None = None,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[Frame, None]:
        """The events of a stream as they come; an `error` among them is raised. Closing it ends the request."""
        given = {**self._given(user, headers), "Accept": "text/event-stream"}
        content = _content(body, given)
        async with (
            self._opened(method, path, given, _query(query), content) as answer,
            aclosing(frames_of(answer.aiter_bytes())) as frames,
        ):
            try:
                async for frame in frames:
                    if frame.event == "error":
                        told = json.loads(frame.data)
                        raise error_of(told, int(told.get("status", 500)))
                    yield frame
            except httpx2.TransportError as error:
                raise _cut_off(self.url, error) from error

    @asynccontextmanager
    async def _opened(
        self, method: str, path: str, headers: Mapping[str, str], query: Any, content: bytes | None
    ) -> AsyncGenerator[httpx2.Response, None]:
        # Between two events there may be nothing but a heartbeat: silence is no failure within a minute.
        timeout = httpx2.Timeout(60.0, connect=10.0)
        request = self._http.build_request(
            method, self.url + path, headers=headers, params=query, content=content, timeout=timeout
        )
        try:
            answer = await self._http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise _unreachable(self.url, error) from error
        try:
            if answer.status_code >= 400:
                try:
                    await answer.aread()
                except httpx2.TransportError as error:
                    raise _cut_off(self.url, error) from error
                read(answer)
            yield answer
        finally:
            await answer.aclose()

    @asynccontextmanager
    async def download(
        self, path: str, *, user: str | None, query: Mapping[str, Any] | None
    ) -> AsyncGenerator[httpx2.Response, None]:
        """An answer whose body is read piece by piece; that it breaks off raises `RemoteUnavailableError`."""
        async with self._opened("GET", path, self._given(user, None), _query(query), None) as answer:
            try:
                yield answer
            except httpx2.TransportError as error:
                raise _cut_off(self.url, error) from error

    def _given(self, user: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
        given = {**self._headers, **(headers or {})}
        if user is not None:
            given["X-Tellback-User"] = quote(checks.scope_name("user_id", user), safe="")
        return given


def read(answer: httpx2.Response) -> Any:
    """The JSON of an answer; raises the error that it tells of."""
    if answer.status_code == 204:
        return None
    try:
        # json.loads takes half a character, which was said and stored; stricter readers do not.
        told = json.loads(answer.content)
    except ValueError:
        if answer.status_code in UNAVAILABLE:  # of a proxy before it, as a rule
            raise RemoteUnavailableError(
                f"The server is not there: {answer.url.host} answered with {answer.status_code}.", answer.status_code
            ) from None
        raise RemoteError(
            f"The server answered {answer.request.method} {answer.request.url.path} with {answer.status_code} and what"
            " is no JSON: is it a Tellback server?",
            answer.status_code,
        ) from None
    if answer.status_code < 400:
        return told
    error = error_of(told if isinstance(told, dict) else {}, answer.status_code)
    if isinstance(error, NotFoundError) and not error.kind:
        error.kind, error.id = "path", answer.request.url.path
    raise error


def _content(body: Any, headers: dict[str, str] | Mapping[str, str]) -> bytes | None:
    if body is None:
        return None
    assert isinstance(headers, dict)
    headers["Content-Type"] = "application/json"
    try:
        return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"a text holds half a character, {error.object[error.start : error.end]!r}, which cannot be sent: what is"
            " sent is UTF-8."
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"what is sent must be JSON: {error}.") from None


def _query(given: Mapping[str, Any] | None) -> dict[str, Any]:
    found = {name: value for name, value in (given or {}).items() if value is not None}
    for name, value in found.items():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, str) and not checks.is_id(each):
                raise InvalidArgumentError(f"{name} holds characters that cannot be sent: {each!r:.80}.")
    return found


def _is_in_doubt(answer: httpx2.Response) -> bool:
    try:
        return bool((json.loads(answer.content).get("data") or {}).get("inDoubt"))
    except (ValueError, AttributeError):  # a proxy's
        return False


def _pause(attempt: int, asked: str | None = None) -> float:
    if asked is not None and asked.isdecimal():
        return min(float(asked), LONGEST_WAIT)
    return float(min(0.1 * 2**attempt, 2.0))


def _unreachable(url: str, error: Exception) -> RemoteUnavailableError:
    return RemoteUnavailableError(f"The server at {url} cannot be reached ({type(error).__name__}): {error}.")


def _cut_off(url: str, error: Exception) -> RemoteUnavailableError:
    return RemoteUnavailableError(f"The answer of {url} was cut off ({type(error).__name__}).")
