"""Several servers at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tellback.errors import ConfigurationError
from tellback.tools.mcp.server import McpServer
from tellback.tools.tool import Tool


@asynccontextmanager
async def mcp_tools(*servers: McpServer) -> AsyncIterator[list[Tool]]:
    """The tools of several servers in one list; they are connected at the same time, and closed at the end.

    A server that somebody else is inside of, too, stays open until they leave.
    """
    enter_tasks = [asyncio.ensure_future(server.__aenter__()) for server in servers]
    try:
        await _gather_all(enter_tasks)
        tool_lists = await _gather_all(server.tools() for server in servers)
        owners: dict[str, McpServer] = {}
        for server, tools in zip(servers, tool_lists, strict=True):
            for tool in tools:
                first = owners.setdefault(tool.name, server)
                if first is not server:
                    raise ConfigurationError(
                        f"MCP servers {first.name!r} and {server.name!r} both have a tool {tool.name!r}:"
                        " give one of them a prefix=... ."
                    )
        yield [tool for tools in tool_lists for tool in tools]
    finally:
        entered = [
            task.result() for task in enter_tasks if task.done() and not task.cancelled() and not task.exception()
        ]
        await _gather_all(server.__aexit__() for server in entered)


async def _gather_all(work: Any) -> list[Any]:
    """Every outcome, once all have ended; the first error is raised."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes
