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

from tellback.background import stopped
from tellback.server.callers import Caller
from tellback.server.settings import ServerSettings
from tellback.user import User

if TYPE_CHECKING:
    from tellback.mcp import McpApp

PATH = "/mcp"


def add_mcp(app: FastAPI, settings: ServerSettings) -> McpFace | None:
    """Serve MCP if its extra is installed. What is given must be `running()` while requests are answered."""
    if find_spec("mcp") is None:
        return None
    face = McpFace(settings)
    app.router.routes.append(Route(PATH, endpoint=face))
    return face


class McpFace:
    """Loads the MCP server when it is first asked for: its SDK is a third of the time that a server takes to start."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._asked = asyncio.Event()
        self._face: asyncio.Future[McpApp] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests; at the end, calls that are still running are stopped."""
        self._asked = asyncio.Event()
        self._face, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
        task = asyncio.create_task(self._run(self._face, stop), name="tellback mcp")
        try:
            yield
        finally:
            stop.set()
            if self._asked.is_set():
                await task
            else:
                await stopped(task)
            self._face = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._face is None:
            await PlainTextResponse("Service Unavailable", 503)(scope, receive, send)
            return
        self._asked.set()
        await (await asyncio.shield(self._face))(scope, receive, send)

    async def _run(self, face: asyncio.Future[McpApp], stop: asyncio.Event) -> None:
        await self._asked.wait()
        try:
            made = await asyncio.to_thread(_made, self._settings)
        except Exception as error:  # noqa: BLE001 - whoever asks learns of it
            face.set_exception(error)
            return
        async with made.running():
            face.set_result(made)
            await stop.wait()


def _made(settings: ServerSettings) -> McpApp:
    from tellback.mcp import http_app

    # The guard has looked at the host and the credential; pages of other origins are refused here as well.
    return http_app(
        _user, allowed_hosts=None, allowed_origins=settings.cors_origins, max_body_bytes=settings.body_bytes
    )


def _user(scope: Mapping[str, Any]) -> User:
    caller: Caller = scope["state"]["caller"]
    return caller.user
