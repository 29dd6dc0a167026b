"""Paginated lists: deletions skip nothing, and pages have a maximum size."""

from __future__ import annotations

import base64
from typing import Any

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tests.support.http_server import app_client


async def list_pages(client: Any, path: str, limit: int) -> list[list[Any]]:
    """Return the items of all pages."""
    found, cursor = [], None
    while True:
        query = {"limit": limit} if cursor is None else {"limit": limit, "cursor": cursor}
        page = (await client.get(path, params=query)).json()
        found.append(page["items"])
        cursor = page["nextCursor"]
        if cursor is None:
            return found


async def test_a_list_continues_after_a_deleted_item() -> None:
    async with Tellback(":memory:", worker=False, embedder=None) as tb:
        spaces = [await tb.user("local").memory.create_space(f"s{n}") for n in range(6)]
        async with app_client(create_app(tb, ServerSettings(open=True), opens=False)) as client:
            first = (await client.get("/ai-memory/spaces?limit=2")).json()
            await tb.user("local").memory.delete_space(spaces[1].id)
            rest = (await client.get("/ai-memory/spaces", params={"cursor": first["nextCursor"]})).json()
        assert [each["name"] for each in rest["items"]] == ["s2", "s3", "s4", "s5"]


async def test_a_limit_above_the_maximum_returns_a_cursor() -> None:
    async with Tellback(":memory:", worker=False, embedder=None) as tb:
        for n in range(5):
            await tb.user("local").memory.create_space(f"s{n}")
        async with app_client(create_app(tb, ServerSettings(open=True, largest_page=2), opens=False)) as client:
            found = await list_pages(client, "/ai-memory/spaces", 1_000)
            default_page = (await client.get("/ai-memory/spaces")).json()["items"]
        assert [len(page) for page in found] == [2, 2, 1]
        assert len(default_page) == 2


async def test_pages_of_large_messages_are_short() -> None:
    async with Tellback(":memory:", worker=False, embedder=None) as tb:
        conversations = tb.user("local").conversations
        conversation = await conversations.create("chat")
        picture = {"type": "image", "mime_type": "image/png", "data": base64.b64encode(b"x" * 900_000).decode()}
        for _ in range(45):
            await conversations.append_user_message(conversation.id, [picture])
        async with app_client(create_app(tb, ServerSettings(open=True), opens=False)) as client:
            found = await list_pages(client, f"/ai-conversations/{conversation.id}/messages", 200)
            forward = await client.get(f"/ai-conversations/{conversation.id}/messages?after=0&limit=200")
        assert [len(page) for page in found] == [20, 20, 5]
        assert [each["seq"] for page in reversed(found) for each in page] == [*range(1, 46)]
        assert [each["seq"] for each in forward.json()["items"]] == [*range(1, 21)]
