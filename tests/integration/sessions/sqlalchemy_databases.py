"""Databases for tests of `SqlAlchemyAdapter`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tellback.sessions.adapter import PersistenceAdapter
from tellback.sessions.sqlalchemy import SqlAlchemyAdapter
from tellback.testing.sessions import MakeAdapter
from tellback.testing.sessions.repositories import contents, later, make_message, make_session
from tellback.types.conversations import SessionData
from tests.support.servers.postgres import PostgresServer

KINDS = ("sqlite", "postgresql")
DATA = {"text": "né 🧑", "n": 2**60, "f": 1.5, "list": [1, None, True]}


def asyncpg_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+asyncpg://")


def sqlite_url(folder: Path) -> str:
    return f"sqlite+aiosqlite:///{folder / 'sessions.db'}"


def make_adapter_factory(url: str) -> MakeAdapter:
    """A function that creates adapters with tables used by this test alone."""
    tag = uuid.uuid4().hex[:8]

    def make(
        prefix: str = "one", *, session_ttl: float | None = None, message_ttl: float | None = None
    ) -> SqlAlchemyAdapter:
        tables = {"sessions": f"{prefix}_{tag}_sessions", "messages": f"{prefix}_{tag}_messages"}
        ttls: dict[str, Any] = {"session_ttl": session_ttl, "message_ttl": message_ttl}
        return SqlAlchemyAdapter(url, auto_migrate=True, tables=tables, **ttls)

    return make


def fresh_database(server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database, dropped afterwards."""
    name = f"sqlalchemy_{uuid.uuid4().hex[:8]}"
    server.psql(f"CREATE DATABASE {name}")
    yield asyncpg_url(server.url(name))
    server.psql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind: `@pytest.mark.parametrize("url", KINDS, indirect=True)`."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    return asyncpg_url(request.getfixturevalue("postgres_url"))


async def check_turns_complete(adapter: PersistenceAdapter, id: str = "web-42") -> int:
    """Return the stored version, and check that its turns of two messages are complete."""
    found = await adapter.session_repository.get(id)
    message_texts = contents(await adapter.message_repository.list_by_session(id))
    version = 0 if found is None else found.version
    assert message_texts == [f"{n}.{k}" for n in range(1, version + 1) for k in range(2)]
    assert (0 if found is None else found.message_count) == len(message_texts)
    return version


def make_turn(version: int, id: str = "web-42") -> tuple[SessionData, list[Any]]:
    return make_session(id, version=version), [make_message(f"{version}.{k}", id) for k in range(2)]


async def check_round_trip(adapter: PersistenceAdapter, data: dict[str, Any] = DATA) -> None:
    """Store values of every type, and check that they are read back unchanged."""
    sessions, messages = adapter.session_repository, adapter.message_repository
    saved = await adapter.save(make_session(version=1, collected_data=data), [make_message("one"), make_message("two")])
    assert await sessions.get("web-42") == saved
    assert saved.collected_data == data
    message = make_message(
        "three", tool_calls=({"tool_name": "t", "arguments": data, "result": None},), event={"data": data}
    )
    (added,) = await messages.add([message], at=later(3))
    found = await messages.list_by_session("web-42")
    assert contents(found) == ["one", "two", "three"]
    assert found[2] == added
    assert [each.position for each in found] == [1, 2, 3]
    completed = await sessions.update_status("web-42", "completed", at=later(4), completed_at=later(4.000001))
    assert await sessions.list_by_user("maya") == [completed]
    assert await sessions.list_by_user("maya", before=completed) == []
    assert await sessions.find_active("maya") is None
    assert await adapter.purge_expired() == 0
    assert await sessions.delete("web-42")
    assert await messages.list_by_session("web-42") == []
