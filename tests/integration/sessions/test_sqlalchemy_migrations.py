"""`SqlAlchemyAdapter` creates tables, migrates existing ones, and reports missing parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import create_async_engine

from tellback.errors import SchemaVersionError
from tellback.sessions.sqlalchemy import SqlAlchemyAdapter
from tellback.testing.sessions.repositories import NOON, contents, make_message, make_session
from tests.integration.sessions.sqlalchemy_databases import KINDS, check_round_trip, sqlite_url, url

__all__ = ["url"]

pytestmark = pytest.mark.backend("SQLAlchemy")
on_both = pytest.mark.parametrize("url", KINDS, indirect=True)

SESSIONS_1 = (
    "id {key}, user_id TEXT, agent_name TEXT, status TEXT, current_route TEXT, current_state TEXT,"
    " collected_data {json}, message_count INTEGER, last_message_at {moment}, completed_at {moment},"
    " created_at {moment}, updated_at {moment}"
)
MESSAGES_1 = (
    "id {key}, session_id TEXT, user_id TEXT, role TEXT, content TEXT, route TEXT, state TEXT, tool_calls {json},"
    " event {json}, created_at {moment}"
)
LATE = "'2026-03-01 12:00:00.123456'"


async def run(url: str, *statements: str) -> None:
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)
    await engine.dispose()


async def ask(url: str, question: str) -> list[tuple[Any, ...]]:
    engine = create_async_engine(url)
    async with engine.connect() as connection:
        rows = [tuple(row) for row in await connection.execute(text(question))]
    await engine.dispose()
    return rows


@on_both
async def test_without_auto_migrate_missing_parts_are_reported(url: str) -> None:
    adapter = SqlAlchemyAdapter(url)
    with pytest.raises(SchemaVersionError, match=r"'agent_sessions'.*'agent_messages'.*auto_migrate"):
        await adapter.initialize()
    await run(url, "CREATE TABLE agent_sessions (id VARCHAR(200) PRIMARY KEY, user_id TEXT)")
    with pytest.raises(SchemaVersionError, match=r"column 'status' of table 'agent_sessions'"):
        await adapter.initialize()
    await run(url, "DROP TABLE agent_sessions")
    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(adapter.metadata.create_all)
    await engine.dispose()
    await adapter.initialize()
    await check_round_trip(adapter)
    await adapter.disconnect()


@on_both
async def test_tables_of_a_later_version_are_rejected(url: str) -> None:
    for migrates in (True, False):
        adapter = SqlAlchemyAdapter(url, auto_migrate=migrates)
        if migrates:
            await adapter.initialize()
            await adapter.disconnect()
            await run(url, "INSERT INTO agent_sessions_migrations VALUES (99, '2030-01-01 00:00:00.000000')")
        with pytest.raises(SchemaVersionError, match="99"):
            await adapter.initialize()


@on_both
@pytest.mark.parametrize("moment", ["TIMESTAMP", "TEXT"])
@pytest.mark.parametrize("json", ["JSON", "TEXT"])
@pytest.mark.parametrize("key", ["VARCHAR(200) PRIMARY KEY", "VARCHAR(200)"])
async def test_existing_tables_are_migrated_with_their_rows(url: str, moment: str, json: str, key: str) -> None:
    types = {"moment": moment, "json": json, "key": key}
    values_sql = ", ".join(
        f"('{id}', 'web-42', 'user', '{id}', {created_at})" for id, created_at in (("c", LATE), ("a", LATE))
    )
    early = "('z', 'web-42', 'agent', 'z', '2026-03-01 11:00:00'), ('k', 'web-43', 'user', 'k', '2026-03-01 11:00:00')"
    await run(
        url,
        f"CREATE TABLE agent_sessions ({SESSIONS_1.format(**types)})",
        f"CREATE TABLE agent_messages ({MESSAGES_1.format(**types)})",
        "INSERT INTO agent_sessions (id, user_id, status, collected_data, message_count, created_at, updated_at)"
        f""" VALUES ('web-42', 'maya', 'active', '{{"to": "Rome"}}', 3, {LATE}, {LATE})""",
        f"INSERT INTO agent_messages (id, session_id, role, content, created_at) VALUES {values_sql}, {early}",
    )
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await adapter.initialize()
    found = await adapter.session_repository.get("web-42")
    assert found is not None
    assert (found.version, found.collected_data, found.message_count) == (0, {"to": "Rome"}, 3)
    assert found.created_at == datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
    messages = await adapter.message_repository.list_by_session("web-42")
    assert [(each.id, each.position) for each in messages] == [("z", 1), ("a", 2), ("c", 3)]
    saved = await adapter.save(make_session(version=1), [make_message("on")])
    assert (saved.message_count, saved.created_at, saved.updated_at) == (4, found.created_at, NOON)
    assert contents(await adapter.message_repository.list_by_session("web-43")) == ["k"]
    assert await ask(url, "SELECT version FROM agent_sessions_migrations ORDER BY version") == [(1,), (2,)]
    await adapter.disconnect()


@on_both
async def test_missing_columns_are_added_and_filled(url: str) -> None:
    await run(
        url,
        "CREATE TABLE agent_sessions (id VARCHAR(200) PRIMARY KEY, note TEXT)",
        "CREATE TABLE agent_messages (id VARCHAR(200) PRIMARY KEY, session_id VARCHAR(200))",
        "INSERT INTO agent_sessions VALUES ('web-42', 'mine')",
        "INSERT INTO agent_messages VALUES ('m1', 'web-42'), ('m2', 'web-42')",
    )
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await adapter.initialize()
    found = await adapter.session_repository.get("web-42")
    assert found is not None
    assert (found.status, found.message_count, found.version, found.collected_data) == ("active", 2, 0, {})
    assert found.created_at.tzinfo is not None
    await adapter.save(make_session(version=1), [make_message("on")])
    assert contents(await adapter.message_repository.list_by_session("web-42")) == ["", "", "on"]
    assert await ask(url, "SELECT note FROM agent_sessions") == [("mine",)]
    await adapter.disconnect()


@on_both
async def test_a_missing_messages_table_is_created(url: str) -> None:
    await run(
        url,
        "CREATE TABLE agent_sessions (id VARCHAR(200) PRIMARY KEY)",
        "INSERT INTO agent_sessions VALUES ('web-42')",
    )
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await adapter.initialize()
    saved = await adapter.save(make_session(version=1), [make_message("on")])
    assert (saved.status, saved.message_count) == ("active", 1)
    await adapter.disconnect()


@on_both
async def test_an_unrelated_table_of_that_name_is_not_changed(url: str) -> None:
    await run(url, "CREATE TABLE agent_messages (name TEXT)")
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    with pytest.raises(SchemaVersionError, match="belongs to another program"):
        await adapter.initialize()
    await run(url, "DROP TABLE agent_messages")
    await adapter.initialize()
    await check_round_trip(adapter)
    await adapter.disconnect()


@on_both
async def test_columns_of_unsuitable_types_are_reported(url: str) -> None:
    columns = SESSIONS_1.format(moment="INTEGER", json="TEXT", key="VARCHAR(200) PRIMARY KEY")
    await run(url, f"CREATE TABLE agent_sessions ({columns})")
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    with pytest.raises(SchemaVersionError, match=r"agent_sessions\.created_at is INTEGER"):
        await adapter.initialize()


@on_both
async def test_an_interrupted_migration_continues(url: str) -> None:
    """As if each step was committed separately: the column exists, but the messages have no positions yet."""
    types = {"moment": "TIMESTAMP", "json": "TEXT", "key": "VARCHAR(200) PRIMARY KEY"}
    rows = ", ".join(f"('m{n}', 'web-42', 'user', '{n}', {LATE}, {n})" for n in (1, 2))
    await run(
        url,
        f"CREATE TABLE agent_messages ({MESSAGES_1.format(**types)}, position BIGINT DEFAULT 0 NOT NULL)",
        f"INSERT INTO agent_messages (id, session_id, role, content, created_at, position) VALUES {rows}",
        f"INSERT INTO agent_messages (id, session_id, role, content, created_at) VALUES"
        f" ('m3', 'web-42', 'user', '3', {LATE}), ('m4', 'web-42', 'user', '4', {LATE})",
    )
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await adapter.initialize()
    messages = await adapter.message_repository.list_by_session("web-42")
    assert [(each.id, each.position) for each in messages] == [("m1", 1), ("m2", 2), ("m3", 3), ("m4", 4)]
    await adapter.disconnect()


@on_both
async def test_created_tables_match_the_metadata(url: str) -> None:
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await adapter.initialize()

    def compare(connection: Connection) -> None:
        inspector = inspect(connection)
        for table in adapter.metadata.sorted_tables:
            expected_columns = {column.name: column.nullable for column in table.columns}
            assert {each["name"]: each["nullable"] for each in inspector.get_columns(table.name)} == expected_columns
            assert {each["name"] for each in inspector.get_indexes(table.name)} == {each.name for each in table.indexes}

    engine = create_async_engine(url)
    async with engine.connect() as connection:
        await connection.run_sync(compare)
    await engine.dispose()
    await adapter.disconnect()


@on_both
async def test_dropped_tables_are_recreated(url: str) -> None:
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await adapter.initialize()
    await adapter.disconnect()
    await run(url, "DROP TABLE agent_messages")
    await adapter.initialize()
    await check_round_trip(adapter)
    await adapter.disconnect()


async def test_a_database_created_by_version_1_is_migrated(tmp_path: Path) -> None:
    """Tables of the first migration, with times in many timezones, have the same content after the second."""
    url = sqlite_url(tmp_path)
    adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await adapter.initialize()
    session = make_session(version=1, created_at=NOON + timedelta(microseconds=7))
    saved = await adapter.save(session, [make_message("one"), make_message("two")])
    await adapter.disconnect()
    indexes = ("ix_agent_messages_place", "ix_agent_messages_expires", "ix_agent_sessions_expires")
    await run(
        url,
        *[f"DROP INDEX {name}" for name in indexes],
        "ALTER TABLE agent_messages DROP COLUMN position",
        "ALTER TABLE agent_messages DROP COLUMN expires_at",
        "ALTER TABLE agent_sessions DROP COLUMN version",
        "ALTER TABLE agent_sessions DROP COLUMN expires_at",
        "DELETE FROM agent_sessions_migrations WHERE version = 2",
    )
    await adapter.initialize()
    found = await adapter.session_repository.get("web-42")
    assert found is not None
    assert (found.version, found.created_at, found.message_count) == (0, saved.created_at, 2)
    assert [each.position for each in await adapter.message_repository.list_by_session("web-42")] == [1, 2]
    await adapter.disconnect()
