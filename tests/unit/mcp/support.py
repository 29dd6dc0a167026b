"""Helpers that connect the official client to a server in the same process, and call its tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp_types import CallToolResult, TextContent

from tellback import Tellback
from tellback.mcp import build_server
from tellback.user import User


@asynccontextmanager
async def open_app() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", worker=False, embedder=None) as tb:
        yield tb


@asynccontextmanager
async def connect(user: User, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
    async with Client(build_server(lambda scope: user, **options), mode=mode) as client:
        yield client


def result_text(result: CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, TextContent)
    return block.text


async def call_ok(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool successfully and return its structured result, which the client validates."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result_text(result)
    assert result_text(result)
    return result.structured_content


async def call_refused(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must fail, and return its error message."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result_text(result)
    assert "Traceback" not in result_text(result)
    return result_text(result)
