"""Authentication middleware: check headers, host, credential, rate limits and body size of every request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tellback.errors import NotAuthenticatedError, RequestTooLargeError, TellbackError
from tellback.server.auth import OPEN_PRINCIPAL, Authenticator, Caller, Principal, ServerContext
from tellback.server.middleware.browser_auth import BrowserAuth, WebUI, with_security_headers
from tellback.server.middleware.headers import (
    RequestRejectedError,
    read_headers,
    rejection_response,
    resolve_acting_user,
)
from tellback.server.middleware.rate_limit import ConcurrencyLimiter, FailedLoginLimiter, RateLimiter
from tellback.server.settings import HostPolicy

PUBLIC_PATHS = frozenset({"/health/live", "/health/ready", "/metrics", "/openapi.json", "/docs"})
"""Paths without a check of credential and host name: monitoring uses the server's address. `/metrics` checks access."""


class BoundedExchange:
    """Limits the size and duration of a request's body.

    A body that is too large or too slow raises where it is read. If the response has not begun, `rejection` becomes the
    response, even if the reader swallowed the error. Otherwise the reader gets a disconnect.
    """

    __slots__ = (
        *("_deadline", "_is_complete", "_max_bytes", "_receive", "_seconds", "_send", "_size"),
        *("has_started", "rejection"),
    )

    def __init__(self, receive: Receive, send: Send, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._send = send
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._size = 0
        self._is_complete = False
        self.has_started = False
        self.rejection: RequestRejectedError | None = None

    def check_length(self, length: bytes | None) -> None:
        """Raise if the Content-Length header is invalid or too large."""
        if length is None:
            return
        if not length.isdigit() or len(length) > 20:
            raise RequestRejectedError(400, "malformed", "Content-Length must be a number of bytes.")
        if int(length) > self._max_bytes:
            raise RequestTooLargeError(f"The body has {int(length)} bytes; at most {self._max_bytes} are allowed.")

    async def receive(self) -> Message:
        """Return the next part of the body, or the messages that follow it."""
        if self._is_complete:
            return await self._receive()
        if self.rejection is not None:
            return self._reject(self.rejection)
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"The body did not arrive within {self._seconds:g} seconds."
            return self._reject(RequestRejectedError(408, "body-timeout", detail, {"Connection": "close"}))
        self._size += len(message.get("body", b""))
        if self._size > self._max_bytes:
            detail = f"The body has more than {self._max_bytes} bytes, which is the limit."
            return self._reject(RequestRejectedError(413, "too-large", detail))
        self._is_complete = not message.get("more_body", False)
        return message

    def _reject(self, rejection: RequestRejectedError) -> Message:
        self.rejection = rejection
        if self.has_started:
            return {"type": "http.disconnect"}
        raise rejection

    async def send(self, message: Message) -> None:
        """Forward a response message, unless the body was rejected before the response began."""
        if not self.has_started:
            if self.rejection is not None:
                return
            self.has_started = True
        await self._send(message)


class AuthMiddleware:
    """Authenticates each request and puts its caller into `scope["state"]["caller"]`, or responds with a problem.

    `scope["state"]["is_still_valid"]` checks later whether the credential is still valid. WebSockets are closed, except
    those of `web_uis`, which `BrowserAuth` authenticates.
    """

    def __init__(
        self, app: ASGIApp, server_context: ServerContext, authenticator: Authenticator, web_uis: Sequence[WebUI] = ()
    ) -> None:
        settings = server_context.settings
        self._app = app
        self._server_context = server_context
        self._authenticator = authenticator
        self._hosts = HostPolicy(settings.allowed_hosts, is_open=settings.open, origins=settings.cors_origins)
        self._rate_limiter = RateLimiter(server_context.tb.store.rate_windows, settings.rate_limit)
        self._concurrency = ConcurrencyLimiter(settings.concurrency)
        self._failed_logins = FailedLoginLimiter(settings.failure_limit)
        self._browser_auth = (
            BrowserAuth(web_uis, server_context, authenticator, self._hosts, self._failed_logins, self._rate_limiter)
            if web_uis
            else None
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        web_ui = None if self._browser_auth is None else self._browser_auth.web_ui_at(_path_below_root(scope))
        if web_ui is not None:
            await self._answer_browser(web_ui, scope, receive, send)
        elif scope["type"] == "http":
            await self._answer_api(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008, "reason": "WebSocket is not supported."})

    async def _answer_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        settings = self._server_context.settings
        exchange = BoundedExchange(receive, send, settings.body_bytes, settings.body_seconds)
        counted_id: str | None = None
        try:
            headers = read_headers(scope)
            principal = None if _path_below_root(scope) in PUBLIC_PATHS else await self._admit(scope, headers, state)
            exchange.check_length(headers.get(b"content-length"))
            if principal is not None and principal is not OPEN_PRINCIPAL:
                self._concurrency.acquire(principal.id)
                counted_id = principal.id
        except (RequestRejectedError, TellbackError) as error:
            await rejection_response(error, state.get("request_id"))(scope, receive, send)
            return
        try:
            await self._forward(scope, receive, send, exchange)
        finally:
            if counted_id is not None:
                self._concurrency.release(counted_id)

    async def _answer_browser(self, web_ui: WebUI, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._browser_auth is not None
        scope.setdefault("state", {})
        if scope["type"] != "http":
            if await self._browser_auth.admit(web_ui, _path_below_root(scope), scope, receive) is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": "Authentication required."})
            return
        settings = self._server_context.settings
        exchange = BoundedExchange(receive, with_security_headers(send), settings.body_bytes, settings.body_seconds)
        response = await self._browser_auth.admit(web_ui, _path_below_root(scope), scope, exchange.receive)
        if response is None:
            await self._forward(scope, receive, with_security_headers(send), exchange)
        else:
            await response(scope, receive, with_security_headers(send))

    async def _forward(self, scope: Scope, receive: Receive, send: Send, exchange: BoundedExchange) -> None:
        """Forward the request; respond with the rejection of its body if no response has begun."""
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:  # however the app handled a rejected body, send the rejection
            if exchange.rejection is None or exchange.has_started:
                raise
        if exchange.rejection is not None and not exchange.has_started:
            await exchange.rejection.to_response(scope["state"].get("request_id"))(scope, receive, send)

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes], state: dict[str, Any]) -> Principal:
        """Authenticate the request and apply the rate limit."""
        client = scope.get("client")
        self._hosts.check(headers, client)
        header = headers.get(b"authorization")
        authorization = None if header is None else header.decode("latin-1")
        principal = await self._authenticate(client, authorization)
        if principal is not OPEN_PRINCIPAL:
            await self._rate_limiter.acquire(principal)
        state["caller"] = Caller(
            self._server_context, principal, resolve_acting_user(principal, headers.get(b"x-tellback-user"))
        )
        state["is_still_valid"] = partial(self._authenticator.is_still_valid, authorization, principal)
        return principal

    async def _authenticate(self, client: tuple[str, int] | None, authorization: str | None) -> Principal:
        try:
            return await self._authenticator.authenticate(authorization)
        except NotAuthenticatedError:
            if authorization is not None:
                self._failed_logins.record_failure(client)
            raise


def _path_below_root(scope: Scope) -> str:
    path, root = str(scope["path"]), scope.get("root_path")
    return path.removeprefix(root) if root else path
