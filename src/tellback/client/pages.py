"""Lists that come page by page."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tellback.client.transport import Transport
from tellback.conversations import checks
from tellback.wire.base import Wire

PAGE = 200
"""How many to ask for at once; a server may give fewer, and tells where it goes on."""


async def listed(
    transport: Transport,
    path: str,
    wire: type[Wire],
    limit: int | None,
    *,
    user: str | None,
    query: Mapping[str, Any],
    cursor: str | None = None,
) -> list[Any]:
    """Up to `limit` values of a list, or all of them."""
    most = None if limit is None else checks.count("limit", limit)
    found: list[Any] = []
    while most is None or len(found) < most:
        size = PAGE if most is None else min(PAGE, most - len(found))
        page = await transport.call("GET", path, user=user, query={**query, "limit": size, "cursor": cursor})
        found.extend(wire.model_validate(each).value() for each in page["items"])
        cursor = page["nextCursor"]
        if cursor is None:
            break
    return found


def cursor_at(place: str | None) -> str | None:
    """A cursor that goes on behind a certain one."""
    return (
        None if place is None else base64.urlsafe_b64encode(place.encode(errors="surrogatepass")).decode().rstrip("=")
    )
