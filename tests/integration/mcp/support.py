"""Helpers that run the server over HTTP and as a program, and connect the official client."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tellback import Tellback
from tellback.errors import InvalidArgumentError
from tellback.mcp import McpApp, http_app
from tellback.user import User

PROGRAM = ("-W", "error", "-m", "tellback.cli", "mcp")


def server_parameters(url: Path | str, user: str, *extra_args: str) -> StdioServerParameters:
    args = [*PROGRAM, "--url", str(url), "--user", user, *extra_args]
    return StdioServerParameters(command=sys.executable, args=args)


def authenticate(tb: Tellback, app: ASGIApp) -> ASGIApp:
    """Wrap an app with authentication that stores the caller in the scope."""

    async def authenticated_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            name = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
            scope.setdefault("state", {})["caller"] = tb.user(name) if name else None
        await app(scope, receive, send)

    return authenticated_app


async def authenticated_user(scope: Mapping[str, Any]) -> User:
    found = scope["state"]["caller"]
    if found is None:
        raise InvalidArgumentError("Authentication required.")
    assert isinstance(found, User)
    return found


@asynccontextmanager
async def run_http_server(
    tb: Tellback, user_of: Callable[..., Any] = authenticated_user, **options: Any
) -> AsyncIterator[tuple[str, McpApp]]:
    """Run a server and yield its address; at the end, stop it as a signal would."""
    app = http_app(user_of, **options)

    @asynccontextmanager
    async def lifespan(starlette: Starlette) -> AsyncIterator[None]:
        async with app.running():
            yield

    starlette = Starlette(routes=[Route("/mcp", endpoint=app)], lifespan=lifespan)
    config = uvicorn.Config(
        authenticate(tb, starlette), log_level="error", ws="none", lifespan="on", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    task = asyncio.create_task(server._serve([listening]))  # does not install signal handlers, which pytest needs
    try:
        async with asyncio.timeout(20):
            while not server.started:  # noqa: ASYNC110 - it has no event to wait for
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", app
    finally:
        server.should_exit = True
        async with asyncio.timeout(20):
            await task
        listening.close()


@asynccontextmanager
async def connect(address: str, user: str, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=20) as http,
        Client(streamable_http_client(address, http_client=http), mode=mode) as client,
    ):
        yield client
