"""Lists that come page by page."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from tellback.client.transport import Transport
from tellback.conversations import checks
from tellback.wire.base import WireModel

PAGE_SIZE = 200
"""How many to ask for at once; a server may give fewer, and tells where it goes on."""


async def list_all(
    transport: Transport,
    path: str,
    model: type[WireModel],
    limit: int | None,
    *,
    user: str | None,
    query: Mapping[str, Any],
    cursor: str | None = None,
) -> list[Any]:
    """Up to `limit` values of a list, or all of them."""
    max_items = None if limit is None else checks.validate_count("limit", limit)
    items: list[Any] = []
    while max_items is None or len(items) < max_items:
        size = PAGE_SIZE if max_items is None else min(PAGE_SIZE, max_items - len(items))
        page = await transport.call("GET", path, user=user, query={**query, "limit": size, "cursor": cursor})
        items.extend(model.model_validate(each).value() for each in page["items"])
        cursor = page["nextCursor"]
        if cursor is None:
            break
    return items


def encode_cursor(position: str | None) -> str | None:
    """A cursor that goes on behind a certain one."""
    return (
        None
        if position is None
        else base64.urlsafe_b64encode(position.encode(errors="surrogatepass")).decode().rstrip("=")
    )
