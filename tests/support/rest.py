"""An in-process client of a server, without a socket, optionally with an API key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.types.access import ApiKeyRole
from tests.support.http_server import app_client

RestClient = httpx2.AsyncClient


@asynccontextmanager
async def rest_client(
    tb: Tellback,
    user: str | None = "maya",
    *,
    role: ApiKeyRole | None = None,
    tenant: str = "default",
    app: str = "default",
    settings: ServerSettings | None = None,
) -> AsyncIterator[RestClient]:
    """Yield a client for a user: with a key of the given role, or on an open server if `role` is None."""
    secret = None
    if role is not None:
        key_user = user if role == "user" else None
        secret = (await tb.keys.create(role, tenant_id=tenant, app_id=app, user_id=key_user)).secret
    served = create_app(tb, settings or ServerSettings(open=role is None, rate_limit=None), opens=False)
    async with app_client(served, secret, None if role == "user" else user) as client:
        yield client


def expect_json(answer: httpx2.Response, status: int = 200) -> Any:
    """Check the status and return the JSON of a response."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text[:500]}"
    return answer.json() if answer.content else None


async def list_all(client: RestClient, path: str, **query: Any) -> list[Any]:
    """Read all pages of a list."""
    found: list[Any] = []
    cursor = None
    for _ in range(1_000):
        params = {**query, **({} if cursor is None else {"cursor": cursor})}
        page = expect_json(await client.get(path, params=params))
        found += page["items"]
        cursor = page["nextCursor"]
        if cursor is None:
            return found
    raise AssertionError(f"{path} returned a thousand pages and still a next cursor")
