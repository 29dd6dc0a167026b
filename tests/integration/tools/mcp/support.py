"""Servers for these tests, and helpers that wait for conditions."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tellback.tools import Tool
from tellback.tools.mcp import McpServer

HERE = Path(__file__).parent


def friendly(**options: Any) -> McpServer:
    return McpServer.stdio(sys.executable, [str(HERE / "friendly.py"), "stdio"], **{"name": "friendly", **options})


def hostile(server_log: Path, *wrong: str, **options: Any) -> McpServer:
    args = [str(HERE / "hostile.py"), str(server_log), *wrong]
    return McpServer.stdio(sys.executable, args, **{"name": "hostile", **options})


async def by_name(server: McpServer) -> dict[str, Tool]:
    return {tool.name: tool for tool in await server.tools()}


def entries(server_log: Path) -> list[dict[str, Any]]:
    """Read the log of a hostile server."""
    return [json.loads(line) for line in server_log.read_text().splitlines()] if server_log.exists() else []


def pids(server_log: Path) -> list[int]:
    return [entry["pid"] for entry in entries(server_log) if "pid" in entry]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def http_server(port: int, *extra_args: str) -> AsyncIterator[int]:
    """Run a friendly HTTP server and yield its process id once it listens."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(HERE / "friendly.py"), "http", str(port), *extra_args),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(os.environ),
    )
    try:
        await wait_until(lambda: listens(port) or process.returncode is not None, 40)
        assert process.returncode is None, "the HTTP server did not start"
        yield process.pid
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
