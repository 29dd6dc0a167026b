"""Run a Tellback server in process or on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx2
import uvicorn

START_SECONDS = 20.0
STOP_SECONDS = 20.0


def app_client(app: Any, secret: str | None = None, user: str | None = None) -> httpx2.AsyncClient:
    """Return a client of an app in this process, with an optional API key and user."""
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    if user is not None:
        headers["X-Tellback-User"] = quote(user, safe="")
    transport = httpx2.ASGITransport(app)
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def running_server(app: Any, port: int = 0, **settings: Any) -> AsyncIterator[str]:
    """Run an app on a local port and yield its URL."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", lifespan="on", **settings)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(START_SECONDS):
            while not server.started:
                if running.done():
                    running.result()
                    raise RuntimeError("the server stopped before it started")
                await asyncio.sleep(0.01)
        [server_socket] = server.servers[0].sockets
        yield f"http://127.0.0.1:{server_socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(running, STOP_SECONDS)
