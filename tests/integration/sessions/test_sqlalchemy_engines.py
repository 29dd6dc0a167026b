"""`SqlAlchemyAdapter` on all kinds of engines: complete turns, indexed queries, unchanged values."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import StaticPool, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tellback.errors import ConfigurationError, InvalidArgumentError, SessionConflictError, StoreClosedError
from tellback.sessions.adapter import PersistenceAdapter
from tellback.sessions.sqlalchemy import SqlAlchemyAdapter
from tellback.testing.sessions.repositories import make_message, make_session
from tellback.types.ids import as_utc
from tests.integration.sessions.sqlalchemy_databases import (
    KINDS,
    asyncpg_url,
    check_turns_complete,
    make_turn,
    sqlite_url,
    url,
)

__all__ = ["url"]

pytestmark = pytest.mark.backend("SQLAlchemy")
on_both = pytest.mark.parametrize("url", KINDS, indirect=True)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.timezones()).map(as_utc)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    """A user's own engine."""
    async_engine = create_async_engine(url)
    yield async_engine
    await async_engine.dispose()


@pytest.fixture
async def adapter(url: str) -> AsyncIterator[SqlAlchemyAdapter]:
    sql_adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await sql_adapter.initialize()
    yield sql_adapter
    await sql_adapter.disconnect()


def test_the_adapter_implements_the_protocol() -> None:
    assert isinstance(SqlAlchemyAdapter("sqlite+aiosqlite://"), PersistenceAdapter)


@on_both
async def test_a_passed_engine_stays_open(url: str, engine: AsyncEngine) -> None:
    adapter = SqlAlchemyAdapter(engine, auto_migrate=True)
    await adapter.initialize()
    async with engine.connect() as connection:
        await adapter.save(*make_turn(1))
        await adapter.disconnect()
        with pytest.raises(StoreClosedError, match="initialize"):
            await adapter.save(*make_turn(2))
        assert (await connection.exec_driver_sql("SELECT COUNT(*) FROM agent_messages")).scalar() == 2


def engine_with_manual_begin(url: str) -> AsyncEngine:
    """An engine as SQLAlchemy's documentation recommends for SQLite."""
    engine = create_async_engine(url)

    @event.listens_for(engine.sync_engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def _(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


@pytest.mark.parametrize("kind", ["plain", "begins explicitly", "autocommit", "in memory"])
async def test_concurrent_turns_are_saved_completely_on_any_engine_of_sqlite(tmp_path: Path, kind: str) -> None:
    match kind:
        case "begins explicitly":
            engine = engine_with_manual_begin(sqlite_url(tmp_path))
        case "autocommit":
            engine = create_async_engine(sqlite_url(tmp_path), isolation_level="AUTOCOMMIT")
        case "in memory":
            engine = create_async_engine("sqlite+aiosqlite://")
            assert isinstance(engine.pool, StaticPool)
        case _:
            engine = create_async_engine(sqlite_url(tmp_path))
    adapters = [SqlAlchemyAdapter(engine, auto_migrate=True) for _ in range(1 if kind == "in memory" else 3)]
    for each in adapters:
        await each.initialize()

    async def take_turns(adapter: SqlAlchemyAdapter) -> None:
        for _ in range(4):
            while True:
                found = await adapter.session_repository.get("web-42")
                try:
                    await adapter.save(*make_turn(1 if found is None else found.version + 1))
                except SessionConflictError:
                    continue
                break

    await asyncio.gather(*(take_turns(each) for each in adapters for _ in range(2)))
    assert await check_turns_complete(adapters[0]) == 8 * len(adapters)
    (stored,) = await adapters[0].message_repository.list_by_session("web-42", limit=1)
    with pytest.raises(InvalidArgumentError):  # raised by the last statement: the others are rolled back
        await adapters[0].save(make_session(version=8 * len(adapters) + 1), [make_message("new"), stored])
    assert await check_turns_complete(adapters[0]) == 8 * len(adapters)
    await engine.dispose()


async def test_an_autocommit_engine_is_rejected(postgres_url: str) -> None:
    engine = create_async_engine(asyncpg_url(postgres_url), isolation_level="AUTOCOMMIT")
    with pytest.raises(ConfigurationError, match="AUTOCOMMIT"):
        await SqlAlchemyAdapter(engine, auto_migrate=True).initialize()
    valid_adapter = SqlAlchemyAdapter(engine.execution_options(isolation_level="SERIALIZABLE"), auto_migrate=True)
    await valid_adapter.initialize()
    await asyncio.gather(*(valid_adapter.save(*make_turn(1, f"web-{n}")) for n in range(20)))
    await engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_all_drivers_of_postgresql_behave_alike(postgres_url: str, driver: str) -> None:
    adapter = SqlAlchemyAdapter(postgres_url.replace("postgresql:", f"postgresql+{driver}:"), auto_migrate=True)
    await adapter.initialize()
    data = {"nul": "a\x00b", "lone": "\ud800", "big": 10**30}
    saved = await adapter.save(make_session(version=1, collected_data=data), [])
    assert saved.collected_data == data
    with pytest.raises(SessionConflictError):
        await adapter.session_repository.create(make_session())
    with pytest.raises(InvalidArgumentError):
        await adapter.session_repository.create(make_session("other", version=2**70))
    await adapter.disconnect()


@on_both
async def test_a_message_is_stored_once(url: str, adapter: SqlAlchemyAdapter) -> None:
    _, messages = make_turn(1)
    await adapter.save(make_session(version=1), messages)
    with pytest.raises(InvalidArgumentError, match=messages[1].id):
        await adapter.save(make_session(version=2), [make_message("new"), messages[1]])
    with pytest.raises(InvalidArgumentError):
        await adapter.message_repository.add([messages[0]], at=messages[0].created_at)
    repeated = make_message("twice")
    with pytest.raises(InvalidArgumentError):
        await adapter.message_repository.add([repeated, repeated], at=repeated.created_at)
    assert await check_turns_complete(adapter) == 1


@on_both
async def test_the_id_of_an_expired_message_can_be_reused(url: str, adapter: SqlAlchemyAdapter) -> None:
    expiring = SqlAlchemyAdapter(url, message_ttl=0.001)
    await expiring.initialize()
    await expiring.save(*make_turn(1))
    _, messages = make_turn(1)
    expired = replace(messages[0], id="again")
    await expiring.message_repository.add([expired], at=expired.created_at)
    await asyncio.sleep(0.01)
    (added,) = await adapter.message_repository.add([expired], at=expired.created_at)
    assert await expiring.purge_expired() == 2
    later = await adapter.message_repository.add([make_message("later")], at=expired.created_at)
    assert added.position < later[0].position
    await expiring.disconnect()


@on_both
async def test_positions_of_purged_messages_are_not_reused(url: str) -> None:
    expiring = SqlAlchemyAdapter(url, auto_migrate=True, message_ttl=0.001)
    await expiring.initialize()
    await expiring.save(make_session(version=1), [make_message(str(n)) for n in range(1_100)])
    await asyncio.sleep(0.01)
    assert await expiring.purge_expired() == 1_100
    (added,) = await expiring.message_repository.add([make_message("on")], at=make_session().created_at)
    assert added.position == 1_101
    await expiring.disconnect()


@on_both
async def test_two_hundred_concurrent_turns_are_all_saved(url: str, adapter: SqlAlchemyAdapter) -> None:
    saved = await asyncio.gather(*(adapter.save(*make_turn(1, f"web-{n}")) for n in range(200)))
    assert {each.version for each in saved} == {1}
    assert len(await adapter.session_repository.list_by_user("maya")) == 200
    await asyncio.gather(*(check_turns_complete(adapter, f"web-{n}") for n in range(0, 200, 20)))


def test_use_in_another_event_loop_raises_an_error(tmp_path: Path) -> None:
    adapter = SqlAlchemyAdapter(sqlite_url(tmp_path), auto_migrate=True)

    async def initialize() -> None:
        await adapter.initialize()

    async def use() -> None:
        with pytest.raises(ConfigurationError, match="event loop"):
            await adapter.session_repository.get("web-42")

    async def end() -> None:
        await adapter.disconnect()

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        first.run_until_complete(initialize())
        second.run_until_complete(use())
        with pytest.raises(ConfigurationError, match="event loop"):
            second.run_until_complete(initialize())
        first.run_until_complete(end())
        second.run_until_complete(initialize())
        second.run_until_complete(end())
    finally:
        first.close()
        second.close()


async def test_disconnect_waits_for_running_calls(tmp_path: Path) -> None:
    adapter = SqlAlchemyAdapter(sqlite_url(tmp_path), auto_migrate=True)
    await adapter.initialize()
    saving = [asyncio.create_task(adapter.save(*make_turn(1, f"web-{n}"))) for n in range(10)]
    await asyncio.sleep(0)
    await adapter.disconnect()
    assert {each.version for each in await asyncio.gather(*saving)} == {1}


async def test_reads_and_turns_use_indexes(tmp_path: Path) -> None:
    engine = create_async_engine(sqlite_url(tmp_path))
    adapter = SqlAlchemyAdapter(engine, auto_migrate=True, session_ttl=60, message_ttl=60)
    await adapter.initialize()
    statements: dict[str, Any] = {}

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def _(connection: Any, cursor: Any, statement: str, values: Any, context: Any, is_many: bool) -> None:
        statements[statement] = values

    sessions, messages = adapter.session_repository, adapter.message_repository
    await adapter.save(*make_turn(1))
    await adapter.save(*make_turn(2))
    await messages.add([make_message("note")], at=make_session().created_at)
    await messages.list_by_session("web-42", limit=2, before=9, after=1)
    await messages.list_by_session("web-42")
    found = await sessions.find_active("maya", "Wanda")
    assert found is not None
    await sessions.list_by_user("maya", before=found)
    await sessions.update_status("web-42", "completed", at=found.created_at, completed_at=None)
    await adapter.purge_expired()
    await sessions.delete("web-42")
    indexed_statements = {
        sql: values for sql, values in statements.items() if sql.startswith(("SELECT", "UPDATE", "DELETE"))
    }
    assert len(indexed_statements) > 10
    async with engine.connect() as connection:
        for sql, values in indexed_statements.items():
            plan: Any = (await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)).all()
            steps = [row[3] for row in plan]
            assert not [step for step in steps if step.startswith("SCAN") and "CONSTANT" not in step], (sql, steps)
            assert not [step for step in steps if "TEMP B-TREE" in step], (sql, steps)
    await engine.dispose()


@on_both
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.dictionaries(st.text(), json_values, max_size=4), moment=moments)
def test_any_json_and_any_time_are_returned_unchanged(url: str, data: dict[str, Any], moment: Any) -> None:
    async def there_and_back() -> None:
        adapter = SqlAlchemyAdapter(url, auto_migrate=True)
        await adapter.initialize()
        await adapter.session_repository.delete("web-42")
        session = make_session(collected_data=data, created_at=moment, completed_at=moment)
        try:
            await adapter.session_repository.create(session)
            found = await adapter.session_repository.get("web-42")
            assert found == session
            assert repr(found.collected_data) == repr(data)
        finally:
            await adapter.disconnect()

    asyncio.run(there_and_back())


def test_importing_tellback_does_not_import_sqlalchemy() -> None:
    program = (
        "import sys, tellback, tellback.sessions.in_memory, tellback.sessions.records\n"
        "print('sqlalchemy' in sys.modules)"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert completed.stdout.strip() == "False"
