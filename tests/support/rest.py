"""A server asked in process, without a socket: as anyone, or with a key of a role."""

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
    """A client of a server: for a user, with a key of that role; of an open server if there is none."""
    secret = None
    if role is not None:
        key_user = user if role == "user" else None
        secret = (await tb.keys.create(role, tenant_id=tenant, app_id=app, user_id=key_user)).secret
    served = create_app(tb, settings or ServerSettings(open=role is None, rate_limit=None), opens=False)
    async with app_client(served, secret, None if role == "user" else user) as client:
        yield client


def expect_json(answer: httpx2.Response, status: int = 200) -> Any:
    """The JSON of an answer that has that status."""
    assert answer.status_code == status, f"{answer.status_code}: {answer.text[:500]}"
    return answer.json() if answer.content else None


async def list_all(client: RestClient, path: str, **query: Any) -> list[Any]:
    """A list to its end, page by page."""
    found: list[Any] = []
    cursor = None
    for _ in range(1_000):
        params = {**query, **({} if cursor is None else {"cursor": cursor})}
        page = expect_json(await client.get(path, params=params))
        found += page["items"]
        cursor = page["nextCursor"]
        if cursor is None:
            return found
    raise AssertionError(f"{path} has no end")
