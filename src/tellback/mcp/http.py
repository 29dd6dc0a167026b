"""Serve MCP over streamable HTTP, as an ASGI application to mount."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tellback.errors import ConfigurationError
from tellback.mcp.server import UserOf, build_server
from tellback.memory.tools.base import DEFAULT_TIMEOUT

MAX_BODY_BYTES = 1024 * 1024
GRACE_SECONDS = 5.0
LOOPBACK_HOSTS = tuple(f"{host}{port}" for host in ("127.0.0.1", "localhost", "[::1]") for port in ("", ":*"))
LOOPBACK_ORIGINS = tuple(f"http://{host}" for host in LOOPBACK_HOSTS)


def http_app(
    user_of_scope: UserOf,
    *,
    read_only: bool = False,
    allowed_hosts: Sequence[str] | None = LOOPBACK_HOSTS,
    allowed_origins: Sequence[str] = LOOPBACK_ORIGINS,
    max_body_bytes: int = MAX_BODY_BYTES,
    timeout: float = DEFAULT_TIMEOUT,
) -> McpApp:
    """An MCP server as an ASGI application, for the users that `user_of_scope` finds in each request's scope.

    No session is kept: any process may answer any request, so several workers behave as one. Requests for other hosts
    than `allowed_hosts` and from web pages of other origins than `allowed_origins` are refused, which keeps a web page
    from reaching a server on its reader's machine; "name:*" is a name with any port. `allowed_hosts=None` takes any
    host: for servers that are reached by many names, and ask for a key.
    """
    server = build_server(user_of_scope, read_only=read_only, timeout=timeout)
    return McpApp(server, allowed_hosts, allowed_origins, max_body_bytes)


class McpApp:
    """The ASGI application. It answers while `running()` is entered, which belongs into the lifespan of its server."""

    def __init__(
        self,
        server: Server[Any],
        allowed_hosts: Sequence[str] | None = LOOPBACK_HOSTS,
        allowed_origins: Sequence[str] = LOOPBACK_ORIGINS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        for name, value in (("allowed_hosts", allowed_hosts), ("allowed_origins", allowed_origins)):
            if isinstance(value, str):
                raise ConfigurationError(f"{name} is a list of names, not the text {value!r:.80}.")
        self._server = server
        self._security = TransportSecuritySettings(
            enable_dns_rebinding_protection=allowed_hosts is not None,
            allowed_hosts=list(allowed_hosts or ()),
            allowed_origins=list(allowed_origins),
        )
        self._max_body_bytes = max_body_bytes
        self._manager: StreamableHTTPSessionManager | None = None
        self._calls: set[anyio.CancelScope] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests; at the end, calls that are still running are stopped."""
        if self._manager is not None:
            raise ConfigurationError("This MCP application is running already: enter running() once.")
        manager = StreamableHTTPSessionManager(
            self._server,
            stateless=True,
            security_settings=self._security,
            max_request_body_size=self._max_body_bytes,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None
                await self._cancel_calls()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ConfigurationError(f"The MCP application answers HTTP requests, not {scope['type']!r}.")
        rejection = self._reject(scope)
        if rejection is not None:
            await rejection(scope, receive, send)
            return
        assert self._manager is not None
        with anyio.CancelScope() as call:
            self._calls.add(call)
            try:
                await self._manager.handle_request(scope, receive, send)
            finally:
                self._calls.discard(call)

    def _reject(self, scope: Scope) -> PlainTextResponse | None:
        origin = Headers(scope=scope).get("origin")
        # With hosts to check, the SDK looks at both; without, it would look at neither.
        if (
            not self._security.enable_dns_rebinding_protection
            and origin is not None
            and not self._is_allowed_origin(origin)
        ):
            return PlainTextResponse("Invalid Origin header", 403)
        if scope["method"] != "POST":  # without sessions there is nothing to listen to, and nothing to end
            return PlainTextResponse("Method Not Allowed", 405, {"Allow": "POST"})
        if self._manager is None:
            return PlainTextResponse("Service Unavailable", 503)
        return None

    def _is_allowed_origin(self, origin: str) -> bool:
        return any(
            origin == allowed or (allowed.endswith(":*") and origin.startswith(allowed[:-1]))
            for allowed in self._security.allowed_origins
        )

    async def _cancel_calls(self) -> None:
        for call in self._calls:
            call.cancel()
        with anyio.move_on_after(GRACE_SECONDS, shield=True):
            while self._calls:  # noqa: ASYNC110 - each leaves by itself
                await anyio.sleep(0.01)
