"""Lists of sessions in Redis, with a fake connection."""

from __future__ import annotations

import asyncio
from typing import Any

from tellback.sessions import records
from tellback.sessions.redis.adapter import RedisKeys, _list_member, _RedisStorage
from tellback.sessions.redis.scripts import FIELDS
from tellback.testing.sessions.repositories import later, make_session

SESSIONS = [make_session(f"web-{n}", created_at=later(-n)) for n in range(5)]


class FakeConnection:
    """Contains one user's list, newest first."""

    async def read(self, *command: Any) -> list[bytes]:
        members = [_list_member(session).encode() for session in SESSIONS]
        start = 0 if command[2] == "+" else members.index(command[2].removeprefix("(").encode()) + 1
        return members[start : start + command[-1]]

    async def run(self, script: Any, keys: list[bytes], values: list[Any]) -> list[Any]:
        by_member = {_list_member(session): records.encode_valid_session(session) for session in SESSIONS}
        found = [by_member[member] for member in values[2:]]
        return [[None if row[name] is None else str(row[name]).encode() for name in FIELDS] for row in found]


async def test_leaving_a_list_early_leaves_no_task_running() -> None:
    connection: Any = FakeConnection()
    storage = _RedisStorage(connection, RedisKeys("chat:"), None, None)
    active = await storage.find_active("maya", None)
    listed = await storage.list_by_user("maya", 2, None)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert active is not None
    assert [active.id, *(session.id for session in listed)] == ["web-0", "web-0", "web-1"]
    everything = await storage.list_by_user("maya", 9, None)
    assert [session.id for session in everything] == [session.id for session in SESSIONS]
