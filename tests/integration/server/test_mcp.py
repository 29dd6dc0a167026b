"""MCP behind the auth middleware: the official client, with API keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from tellback import Tellback
from tellback.server import create_app
from tests.support.http_server import running_server


@asynccontextmanager
async def connected(url: str, secret: str, **headers: str) -> AsyncIterator[ClientSession]:
    request_headers = {"Authorization": f"Bearer {secret}", **headers}
    async with (
        httpx2.AsyncClient(headers=request_headers) as http,
        streamable_http_client(f"{url}/mcp", http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        yield session


async def recalled(session: ClientSession, query: str) -> list[str]:
    result: Any = await session.call_tool("recall", {"query": query})
    return [each["text"] for each in result.structured_content["memories"]]


async def test_mcp_acts_for_the_credentials_user() -> None:
    tb = Tellback(":memory:")
    async with running_server(create_app(tb)) as url:
        acme = (await tb.keys.create("app", tenant_id="acme")).secret
        globex = (await tb.keys.create("app", tenant_id="globex")).secret
        user_secret = (await tb.keys.create("user", tenant_id="acme", user_id="maya")).secret
        async with connected(url, acme, **{"X-Tellback-User": "maya"}) as session:
            await session.call_tool("remember", {"text": "Maya keeps bees"})
        async with connected(url, user_secret) as session:
            assert await recalled(session, "bees") == ["Maya keeps bees"]
        async with connected(url, globex, **{"X-Tellback-User": "maya"}) as session:
            assert await recalled(session, "bees") == []
        async with connected(url, acme) as session:
            error_result: Any = await session.call_tool("recall", {"query": "bees"})
            assert error_result.is_error
            assert "X-Tellback-User" in error_result.content[0].text


async def test_mcp_needs_a_credential_and_an_allowed_origin() -> None:
    tb = Tellback(":memory:")
    async with running_server(create_app(tb)) as url, httpx2.AsyncClient() as http:
        answer = await http.post(f"{url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert (answer.status_code, answer.json()["code"]) == (401, "not-authenticated")
        secret = (await tb.keys.create("user", user_id="maya")).secret
        headers = {"Authorization": f"Bearer {secret}", "Origin": "https://evil.example"}
        answer = await http.post(f"{url}/mcp", json={}, headers=headers)
        assert answer.status_code == 403
