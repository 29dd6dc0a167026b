"""`SqlAlchemyAdapter` on failures: crashes, broken connections, unusable servers and files."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.sessions.sqlalchemy import SqlAlchemyAdapter, database
from tellback.testing.sessions.repositories import make_message, make_session
from tests.integration.sessions.sqlalchemy_databases import (
    KINDS,
    asyncpg_url,
    check_turns_complete,
    make_turn,
    sqlite_url,
    url,
)
from tests.support.servers.postgres import PostgresServer

__all__ = ["url"]

pytestmark = pytest.mark.backend("SQLAlchemy")
on_both = pytest.mark.parametrize("url", KINDS, indirect=True)

CHILD = """
import asyncio, sys
from tellback.sessions.sqlalchemy import SqlAlchemyAdapter
from tellback.testing.sessions.repositories import make_session
from tellback.types.conversations import MessageData

async def main():
    adapter = SqlAlchemyAdapter(sys.argv[1])
    await adapter.initialize()
    version = int(sys.argv[2])
    while True:
        version += 1
        messages = [MessageData(f"m{version}.{k}", "web-42", "user", f"{version}.{k}") for k in range(2)]
        await adapter.save(make_session(version=version), messages)
        print(version, flush=True)

asyncio.run(main())
"""


@pytest.fixture
async def adapter(url: str) -> AsyncIterator[SqlAlchemyAdapter]:
    sql_adapter = SqlAlchemyAdapter(url, auto_migrate=True)
    await sql_adapter.initialize()
    yield sql_adapter
    await sql_adapter.disconnect()


@on_both
async def test_a_cancelled_turn_is_saved_completely_or_not_at_all(url: str, adapter: SqlAlchemyAdapter) -> None:
    version = 0
    for steps in range(120):
        saving = asyncio.create_task(adapter.save(*make_turn(version + 1)))
        for _ in range(steps % 60):
            await asyncio.sleep(0)
        if steps >= 60:
            await asyncio.sleep(steps / 20_000)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        found = await check_turns_complete(adapter)
        assert found in (version, version + 1)
        version = found
    assert (await adapter.save(*make_turn(version + 1))).version == version + 1


def start_child(url: str, stored: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD, url, str(stored)], stdout=subprocess.PIPE, text=True)


@on_both
async def test_a_killed_process_leaves_complete_turns(url: str, adapter: SqlAlchemyAdapter) -> None:
    stored = 0
    for turns in (3, 7):
        child = start_child(url, stored)
        assert child.stdout is not None
        with child.stdout as output:
            acknowledged_lines = [await asyncio.to_thread(output.readline) for _ in range(turns)]
            child.send_signal(signal.SIGKILL)
            acknowledged_lines += [line for line in output if line.endswith("\n")]
        child.wait(10)
        stored = await check_turns_complete(adapter)
        assert stored >= int(acknowledged_lines[-1])
    assert (await adapter.save(*make_turn(stored + 1))).version == stored + 1


async def test_terminated_connections_are_replaced(postgres_url: str, postgres_server: PostgresServer) -> None:
    engine = create_async_engine(asyncpg_url(postgres_url))  # without pool_pre_ping
    adapter = SqlAlchemyAdapter(engine, auto_migrate=True)
    await adapter.initialize()
    await asyncio.gather(*(adapter.save(*make_turn(1, f"web-{n}")) for n in range(5)))
    for version in (2, 3):
        end_connections(postgres_server, postgres_url)
        await adapter.save(*make_turn(version, "web-0"))
        end_connections(postgres_server, postgres_url)
        assert await check_turns_complete(adapter, "web-0") == version
    await engine.dispose()


def end_connections(server: PostgresServer, url: str) -> None:
    name = url.rpartition("/")[2]
    server.psql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")


async def test_a_commit_whose_connection_breaks_is_in_doubt(postgres_url: str, postgres_server: PostgresServer) -> None:
    engine = create_async_engine(asyncpg_url(postgres_url))
    adapter = SqlAlchemyAdapter(engine, auto_migrate=True)
    await adapter.initialize()
    await adapter.save(*make_turn(1))
    breaks = [True]

    @event.listens_for(engine.sync_engine, "commit")
    def _(connection: Any) -> None:
        if breaks:
            breaks.pop()
            end_connections(postgres_server, postgres_url)

    with pytest.raises(StoreUnavailableError) as raised:
        await adapter.save(*make_turn(2))
    assert raised.value.in_doubt
    assert await check_turns_complete(adapter) == 1
    await adapter.save(*make_turn(2))
    assert await check_turns_complete(adapter) == 2
    await engine.dispose()


async def test_tables_can_change_while_the_adapter_is_open(postgres_url: str, postgres_server: PostgresServer) -> None:
    adapter = SqlAlchemyAdapter(asyncpg_url(postgres_url), auto_migrate=True)
    await adapter.initialize()
    await adapter.save(*make_turn(1))
    name = postgres_url.rpartition("/")[2]
    postgres_server.psql("ALTER TABLE agent_sessions ADD COLUMN shop TEXT DEFAULT 'corner'", name)
    postgres_server.psql("ALTER TABLE agent_sessions ALTER COLUMN agent_name TYPE TEXT", name)
    await adapter.save(*make_turn(2))
    assert await check_turns_complete(adapter) == 2
    postgres_server.psql("DROP TABLE agent_messages", name)
    with pytest.raises(StoreError, match="agent_messages"):
        await adapter.save(*make_turn(3))
    await adapter.disconnect()


async def test_the_adapter_waits_for_a_locked_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.3)
    adapter = SqlAlchemyAdapter(f"{sqlite_url(tmp_path)}?timeout=0.05", auto_migrate=True)
    await adapter.initialize()
    holder = create_async_engine(sqlite_url(tmp_path))
    async with holder.connect() as connection:
        await connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError):
            await adapter.save(*make_turn(1))
        monkeypatch.setattr(database, "BUSY_SECONDS", 30.0)
        saving = asyncio.create_task(adapter.save(*make_turn(1)))
        await asyncio.sleep(0.2)
        assert not saving.done()
        await connection.rollback()
    assert (await saving).version == 1
    await holder.dispose()
    await adapter.disconnect()


async def test_a_pool_without_a_free_connection_raises_store_busy_error(postgres_url: str) -> None:
    engine = create_async_engine(asyncpg_url(postgres_url), pool_size=1, max_overflow=0, pool_timeout=0.1)
    adapter = SqlAlchemyAdapter(engine, auto_migrate=True)
    await adapter.initialize()
    async with engine.connect():
        with pytest.raises(StoreBusyError, match="pool"):
            await adapter.session_repository.get("web-42")
    assert await adapter.session_repository.get("web-42") is None
    await engine.dispose()


async def test_a_server_that_never_answers_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "OPERATION_SECONDS", 0.2)
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    adapter = SqlAlchemyAdapter(f"postgresql+asyncpg://app:pa55word@127.0.0.1:{port}/shop")
    with pytest.raises(StoreUnavailableError, match="in time"):
        await adapter.initialize()
    for writer in writers:
        writer.close()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+asyncpg://app:pa55word@127.0.0.1:1/shop",
        "postgresql+asyncpg://app:pa55word@nowhere.invalid/shop?password=pa55word",
        "postgresql+psycopg://app:pa55word@127.0.0.1:1/shop",
        "postgresql+asyncpg://app:pa55word@127.0.0.1:1/shop?sslmode=pa55word",
        "sqlite+aiosqlite:////nowhere/at/all.db",
    ],
)
async def test_an_unreachable_database_is_reported_without_the_password(url: str) -> None:
    adapter = SqlAlchemyAdapter(url)
    assert "pa55word" not in repr(adapter)
    with pytest.raises((StoreUnavailableError, ConfigurationError)) as raised:
        await adapter.initialize()
    assert "pa55word" not in str(raised.value)
    with pytest.raises(StoreClosedError):
        await adapter.session_repository.get("web-42")
    await adapter.disconnect()
    await asyncio.sleep(0.1)  # the driver's thread still has to report its end to this loop


async def test_wrong_credentials_are_reported(postgres_url: str, postgres_server: PostgresServer) -> None:
    for wrong in (postgres_url.replace("postgres@", "nobody_here:pa55word@"), postgres_url + "_not"):
        with pytest.raises(StoreUnavailableError, match="rejected the login") as raised:
            await SqlAlchemyAdapter(asyncpg_url(wrong), auto_migrate=True).initialize()
        assert "pa55word" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        *("", "nonsense", "sqlite:///a.db", "mysql://app:pa55word@db/shop", "other+driver://app:pa55word@db/shop"),
        *("postgresql+asyncpg://app:pa55word@db:port/shop", "mysql+aiomysql://app:pa55word@db/shop", 5, None, object()),
    ],
)
def test_an_invalid_url_is_rejected_with_advice(url: Any) -> None:
    with pytest.raises(ConfigurationError) as raised:
        SqlAlchemyAdapter(url)
    assert "pa55word" not in str(raised.value)


async def test_unusable_files_are_reported(tmp_path: Path) -> None:
    adapter = SqlAlchemyAdapter(sqlite_url(tmp_path), auto_migrate=True)
    await adapter.initialize()
    await adapter.disconnect()
    looking = SqlAlchemyAdapter(f"sqlite+aiosqlite:///file:{tmp_path}/sessions.db?mode=ro&uri=true")
    await looking.initialize()
    with pytest.raises(StoreReadOnlyError):
        await looking.save(*make_turn(1))
    await looking.disconnect()
    (tmp_path / "junk.db").write_bytes(b"not a database at all, but long enough" * 50)
    with pytest.raises(StoreCorruptError):
        await SqlAlchemyAdapter(f"sqlite+aiosqlite:///{tmp_path}/junk.db").initialize()


async def test_a_full_disk_is_reported(tmp_path: Path) -> None:
    engine = create_async_engine(sqlite_url(tmp_path))

    @event.listens_for(engine.sync_engine, "connect")
    def _(connection: Any, record: Any) -> None:
        connection.execute("PRAGMA max_page_count = 40")

    adapter = SqlAlchemyAdapter(engine, auto_migrate=True)
    await adapter.initialize()
    await adapter.save(*make_turn(1))
    with pytest.raises(StoreFullError):
        await adapter.save(make_session(version=2), [make_message("x" * 1_000_000)])
    assert await check_turns_complete(adapter) == 1
    await engine.dispose()


async def test_constraint_violations_of_user_tables_are_reported(
    postgres_url: str, postgres_server: PostgresServer
) -> None:
    adapter = SqlAlchemyAdapter(asyncpg_url(postgres_url), auto_migrate=True)
    await adapter.initialize()
    name = postgres_url.rpartition("/")[2]
    postgres_server.psql("ALTER TABLE agent_sessions ADD CHECK (user_id <> 'eve')", name)
    with pytest.raises(StoreError, match="constraint") as raised:
        await adapter.session_repository.create(make_session(user_id="eve"))
    assert not raised.value.in_doubt
    await adapter.disconnect()


async def test_sessions_with_invalid_values_are_rejected(tmp_path: Path) -> None:
    adapter = SqlAlchemyAdapter(sqlite_url(tmp_path), auto_migrate=True)
    await adapter.initialize()
    bad: list[dict[str, Any]] = [{"collected_data": {"a": object()}}, {"created_at": "yesterday"}, {"updated_at": 5}]
    bad += [{"created_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))}]
    bad += [
        {"created_at": make_session().created_at.replace(tzinfo=None)},
        {"message_count": 2**70},
        {"message_count": "x"},
    ]
    for changes in bad:
        with pytest.raises(InvalidArgumentError):
            await adapter.session_repository.create(make_session(**changes))
        with pytest.raises(InvalidArgumentError):
            await adapter.save(make_session(version=1, **changes), [make_message("Hi")])
    not_session: Any = "web-42"
    with pytest.raises(InvalidArgumentError):
        await adapter.session_repository.list_by_user("maya", before=not_session)
    assert await check_turns_complete(adapter) == 0
    await adapter.disconnect()


@pytest.mark.parametrize("package", ["sqlalchemy", "greenlet"])
def test_a_missing_package_raises_missing_extra_error(package: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import tellback, tellback.sessions.adapter\n"
        "from tellback.errors import MissingExtraError\n"
        "try:\n    import tellback.sessions.sqlalchemy\n"
        "except MissingExtraError as error:\n    print(error)\n"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert "tellback[sqlalchemy]" in completed.stdout
