"""`/mcp`: the MCP server over streamable HTTP, for the user of each request's credential."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tellback.concurrency import cancel_and_wait
from tellback.server.auth import Caller
from tellback.server.settings import ServerSettings
from tellback.user import User

if TYPE_CHECKING:
    from tellback.mcp import McpApp

MCP_PATH = "/mcp"


def add_mcp(app: FastAPI, settings: ServerSettings) -> McpEndpoint | None:
    """Add `/mcp` if the extra is installed. Return the endpoint; enter `running()` while the app serves requests."""
    if find_spec("mcp") is None:
        return None
    endpoint = McpEndpoint(settings)
    app.router.routes.append(Route(MCP_PATH, endpoint=endpoint))
    return endpoint


class McpEndpoint:
    """Loads the MCP server on the first request, because its SDK takes a third of the server's startup time."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._requested = asyncio.Event()
        self._app: asyncio.Future[McpApp] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve requests; on exit, cancel calls that are still running."""
        self._requested = asyncio.Event()
        self._app, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = asyncio.create_task(self._run(self._app, stop), name="tellback mcp")
        try:
            yield
        finally:
            stop.set()
            if self._requested.is_set():
                await task
            else:
                await cancel_and_wait(task)
            self._app = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            await PlainTextResponse("Service Unavailable", 503)(scope, receive, send)
            return
        self._requested.set()
        await (await asyncio.shield(self._app))(scope, receive, send)

    async def _run(self, app: asyncio.Future[McpApp], stop: asyncio.Event) -> None:
        await self._requested.wait()
        try:
            mcp_app = await asyncio.to_thread(_build_mcp_app, self._settings)
        except Exception as error:  # noqa: BLE001 - re-raised in the requests that wait for the app
            app.set_exception(error)
            return
        async with mcp_app.running():
            app.set_result(mcp_app)
            await stop.wait()


def _build_mcp_app(settings: ServerSettings) -> McpApp:
    from tellback.mcp import http_app

    # `AuthMiddleware` has checked host and credential; the MCP app checks the origin.
    return http_app(
        _request_user, allowed_hosts=None, allowed_origins=settings.cors_origins, max_body_bytes=settings.body_bytes
    )


def _request_user(scope: Mapping[str, Any]) -> User:
    caller: Caller = scope["state"]["caller"]
    return caller.user
