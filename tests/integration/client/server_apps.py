"""Servers for the client's tests, and proxies that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tellback import Tellback
from tellback.client import TellbackClient
from tellback.server import ServerSettings, create_app
from tests.support.http_server import running_server


class DroppedResponses:
    """Forwards requests, and drops the connection instead of the first responses that a test selects."""

    def __init__(self, app: Any, times: int) -> None:
        self._app = app
        self.left = times
        self.seen = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self.seen += 1
        is_cut = self.left > 0
        self.left -= 1

        async def lost(message: Any) -> None:
            if not is_cut or message["type"] == "http.response.start":
                await send(message)

        await self._app(scope, receive, lost)


class Gate:
    """Forwards requests, or responds like a proxy whose server is down."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.answer: tuple[int, bytes, bytes] | None = None
        self.times = 0
        self.cut_after: int | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and self.answer is not None:
            self.times += 1
            status, kind, body = self.answer
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
            await send({"type": "http.response.body", "body": body})
            return
        await self._app(scope, receive, send if self.cut_after is None else self._cutting(send))

    def _cutting(self, send: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
        async def send_then_cut(message: Any) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": message["body"][: self.cut_after], "more_body": True}
                await send(message)
                raise ConnectionResetError("the cable was cut")
            await send(message)

        return send_then_cut


@asynccontextmanager
async def running_client(
    tb: Tellback, wrap: Callable[[Any], Any] | None = None, *, retries: int = 2, **settings: Any
) -> AsyncIterator[tuple[TellbackClient, Any]]:
    """Yield a client of an open server behind a middleware."""
    app = create_app(tb, ServerSettings(open=True, rate_limit=None, **settings))
    served_app = app if wrap is None else wrap(app)
    async with running_server(served_app) as url, TellbackClient(url, retries=retries) as client:
        yield client, served_app
