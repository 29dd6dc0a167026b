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

from recollect import __version__
from recollect.client.frames import Frame, frames_of
from recollect.errors import ConfigurationError, NotFoundError, RemoteError, RemoteUnavailableError
from recollect.wire.problems import error_of

SAFE = ("GET", "HEAD")
AGAIN = (429, 503)
LONGEST_WAIT = 20.0


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
                f"RecollectClient takes the address of a server, http://… or https://…, not {url!r:.80}."
            )
        self.url = url.rstrip("/")
        self._headers = {"User-Agent": f"recollect-client/{__version__}", "Accept": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._retries = retries
        self._http = http or httpx2.AsyncClient(timeout=httpx2.Timeout(seconds, connect=10.0))
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
        may_repeat = is_read or "Idempotency-Key" in given
        for attempt in range(self._retries + 1):
            last = attempt == self._retries
            try:
                answer = await self._http.request(
                    method, self.url + path, headers=given, params=_query(query), content=_content(body, given)
                )
            except httpx2.TransportError as error:
                never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                if last or not (may_repeat or never_sent):
                    raise _unreachable(self.url, error) from error
                await asyncio.sleep(_pause(attempt))
                continue
            if answer.status_code in AGAIN and not last and (may_repeat or answer.status_code == 429):
                await asyncio.sleep(_pause(attempt, answer.headers.get("Retry-After")))
                continue
            return read(answer)
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
                raise RemoteUnavailableError(
                    f"The stream of {self.url} was cut off ({type(error).__name__})."
                ) from error

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
                await answer.aread()
                read(answer)
            yield answer
        finally:
            await answer.aclose()

    @asynccontextmanager
    async def download(
        self, path: str, *, user: str | None, query: Mapping[str, Any] | None
    ) -> AsyncGenerator[httpx2.Response, None]:
        """An answer whose body is read piece by piece."""
        async with self._opened("GET", path, self._given(user, None), _query(query), None) as answer:
            yield answer

    def _given(self, user: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
        given = {**self._headers, **(headers or {})}
        if user is not None:
            given["X-Recollect-User"] = quote(user, safe="")
        return given


def read(answer: httpx2.Response) -> Any:
    """The JSON of an answer; raises the error that it tells of."""
    if answer.status_code == 204:
        return None
    try:
        # json.loads takes half a character, which was said and stored; stricter readers do not.
        told = json.loads(answer.content)
    except ValueError:
        raise RemoteError(
            f"The server answered {answer.request.method} {answer.request.url.path} with {answer.status_code} and what"
            " is no JSON: is it a Recollect server?",
            answer.status_code,
        ) from None
    if answer.status_code >= 400:
        raise error_of(told if isinstance(told, dict) else {}, answer.status_code)
    return told


def _content(body: Any, headers: dict[str, str] | Mapping[str, str]) -> bytes | None:
    if body is None:
        return None
    assert isinstance(headers, dict)
    headers["Content-Type"] = "application/json"
    return json.dumps(body, allow_nan=False).encode()


def _query(given: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (given or {}).items() if value is not None}


def _pause(attempt: int, asked: str | None = None) -> float:
    if asked is not None and asked.isdecimal():
        return min(float(asked), LONGEST_WAIT)
    return float(min(0.1 * 2**attempt, 2.0))


def _unreachable(url: str, error: Exception) -> RemoteUnavailableError:
    return RemoteUnavailableError(f"The server at {url} cannot be reached ({type(error).__name__}): {error}.")
