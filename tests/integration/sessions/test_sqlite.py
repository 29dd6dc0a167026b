"""Sessions in SQLite."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
from hypothesis import given

from tellback.errors import (
    ConfigurationError,
    SessionConflictError,
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.sessions.adapter import PersistenceAdapter
from tellback.sessions.sql.schema import resolve_tables
from tellback.sessions.sql.sqlite import SqliteAdapter, SqliteDialect
from tellback.sessions.sql.statements import build_statements
from tellback.testing.sessions import MakeAdapter, SessionAdapterConformance
from tellback.testing.sessions.repositories import NOON, contents, make_message, make_session
from tests.integration.sessions.sql_tables_contract import (
    FEW,
    OPERATIONS,
    Make,
    Run,
    SqlTablesContract,
    check_against_in_memory,
)

SQLITE = pytest.mark.backend("SQLite", sqlite3.sqlite_version)

WRITER = """
import asyncio, itertools, sys
from tellback.sessions.sql.sqlite import SqliteAdapter
from tellback.testing.sessions.repositories import make_message, make_session

async def main():
    adapter = SqliteAdapter(sys.argv[1])
    await adapter.initialize()
    for turn in itertools.count(1):
        ids = [f"web-{n}" for n in range(4)]
        await asyncio.gather(*(
            adapter.save(make_session(id, version=turn), [make_message(f"{turn}.{k}", id) for k in range(20)])
            for id in ids
        ))
        print(turn, flush=True)

asyncio.run(main())
"""


@SQLITE
class TestSqlite(SessionAdapterConformance):
    @pytest.fixture
    def make_adapter(self, tmp_path: Path) -> MakeAdapter:
        return lambda prefix="one", **ttls: SqliteAdapter(
            tmp_path / "sessions.db",
            tables={"sessions": f"{prefix}_sessions", "messages": f"{prefix}_messages"},
            **ttls,
        )


@SQLITE
class TestInMemory(SessionAdapterConformance):
    shared = False

    @pytest.fixture
    def make_adapter(self) -> MakeAdapter:
        return lambda prefix="one", **ttls: SqliteAdapter(":memory:", **ttls)

    async def test_initializing_and_disconnecting_twice_has_no_effect(self, make_adapter: MakeAdapter) -> None:
        adapter = make_adapter()
        await adapter.initialize()
        await adapter.save(make_session(version=1), [])
        await adapter.initialize()
        assert await adapter.session_repository.get("web-42") is not None
        await adapter.disconnect()
        await adapter.disconnect()
        await adapter.initialize()
        assert await adapter.session_repository.get("web-42") is None  # the data was lost with the connection
        await adapter.disconnect()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], sqlite3.Connection]]:
    """A function that opens connections of the application; they are closed after the test."""
    opened: list[sqlite3.Connection] = []

    def open_one() -> sqlite3.Connection:
        opened.append(sqlite3.connect(tmp_path / "sessions.db"))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@SQLITE
class TestConnection(SessionAdapterConformance):
    @pytest.fixture
    def make_adapter(self, connect: Callable[[], sqlite3.Connection]) -> MakeAdapter:
        return lambda prefix="one", **ttls: SqliteAdapter(
            connect(), tables={"sessions": f"{prefix}_sessions", "messages": f"{prefix}_messages"}, **ttls
        )


@SQLITE
async def test_a_passed_connection_is_used_and_stays_open(connect: Callable[[], sqlite3.Connection]) -> None:
    connection = connect()
    connection.row_factory = lambda cursor, row: {"row": row}
    connection.execute("CREATE TABLE orders (id TEXT)")
    connection.commit()
    adapter = SqliteAdapter(connection, field_mappings={"sessions": {"user_id": "customer"}})
    await adapter.initialize()
    saved = await adapter.save(make_session(version=1), [make_message("Hi")])
    assert not connection.in_transaction
    await adapter.disconnect()
    with pytest.raises(StoreClosedError, match="initialize"):
        await adapter.session_repository.get("web-42")
    assert connection.execute("SELECT customer FROM agent_sessions").fetchall() == [{"row": ("maya",)}]
    await adapter.initialize()
    assert await adapter.session_repository.get("web-42") == saved
    connection.close()
    with pytest.raises(StoreClosedError, match="closed"):
        await adapter.session_repository.get("web-42")


@SQLITE
async def test_a_save_becomes_part_of_a_transaction_of_the_application(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    connection, other = connect(), SqliteAdapter(connect())
    adapter = SqliteAdapter(connection)
    await adapter.initialize()
    await other.initialize()
    connection.execute("CREATE TABLE orders (id TEXT UNIQUE)")
    connection.commit()
    connection.execute("INSERT INTO orders VALUES ('A1')")
    await adapter.save(make_session(version=1), [make_message("Hi")])
    with pytest.raises(SessionConflictError):
        await adapter.save(make_session(version=1), [make_message("lost")])
    assert await other.session_repository.get("web-42") is None
    connection.rollback()
    assert await adapter.session_repository.get("web-42") is None
    connection.execute("INSERT INTO orders VALUES ('A1')")
    saved = await adapter.save(make_session(version=1), [make_message("Hi")])
    connection.commit()
    assert await other.session_repository.get("web-42") == saved
    assert contents(await other.message_repository.list_by_session("web-42")) == ["Hi"]
    assert connection.execute("SELECT * FROM orders").fetchall() == [("A1",)]


@SQLITE
async def test_a_failed_save_leaves_a_passed_connection_without_a_transaction(
    connect: Callable[[], sqlite3.Connection],
) -> None:
    connection = connect()
    connection.execute("PRAGMA busy_timeout = 50")
    adapter = SqliteAdapter(connection)
    await adapter.initialize()
    connection.execute("CREATE TRIGGER refuse BEFORE INSERT ON agent_messages BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(StoreError, match="no"):
        await adapter.save(make_session(version=1), [make_message("Hi")])
    assert not connection.in_transaction
    assert await adapter.session_repository.get("web-42") is None
    other = connect()
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match="locked"):
        await adapter.save(make_session(version=1), [])


@SQLITE
async def test_a_connection_of_another_thread_is_reported(connect: Callable[[], sqlite3.Connection]) -> None:
    connection = await asyncio.to_thread(sqlite3.connect, ":memory:")
    with pytest.raises(StoreError, match="thread"):
        await SqliteAdapter(connection).initialize()


@SQLITE
async def test_a_connection_of_aiosqlite_is_rejected_with_what_to_pass() -> None:
    async with aiosqlite.connect(":memory:") as connection:
        with pytest.raises(ConfigurationError, match=r"pass the path, or sqlite3\.connect\(path\)"):
            SqliteAdapter(connection)  # type: ignore[arg-type]


@SQLITE
@pytest.mark.skipif(sys.version_info < (3, 12), reason="added in Python 3.12")
async def test_a_connection_that_never_commits_by_itself_is_rejected() -> None:
    connection = sqlite3.connect(":memory:", autocommit=False)  # type: ignore[call-overload,unused-ignore]
    with closing(connection), pytest.raises(ConfigurationError, match="autocommit=False"):
        await SqliteAdapter(connection).initialize()


@SQLITE
class TestSqliteTables(SqlTablesContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "sessions.db"

    @pytest.fixture
    def make(self, path: Path) -> Make:
        return lambda **options: SqliteAdapter(path, **options)

    @pytest.fixture
    def run(self, path: Path) -> Run:
        async def run(sql: str) -> list[tuple[Any, ...]]:
            with closing(sqlite3.connect(path)) as connection, connection:
                return connection.execute(sql).fetchall()

        return run

    async def _columns(self, run: Run, table: str) -> set[str]:
        return {name for (name,) in await run(f"SELECT name FROM pragma_table_info('{table}')")}

    async def test_time_formats_of_other_tools_are_converted(self, make: Make, run: Run) -> None:
        await run("CREATE TABLE agent_sessions (id TEXT PRIMARY KEY, user_id TEXT, created_at DATETIME)")
        moments = ["'2026-03-01 12:00:00'", "'2026-03-01T12:00:01.000Z'", "1772366402000", "1772366403", "NULL"]
        for n, moment in enumerate(moments):
            await run(f"INSERT INTO agent_sessions VALUES ('web-{n}', 'maya', {moment})")
        adapter = make()
        await adapter.initialize()
        found = await adapter.session_repository.list_by_user("maya")
        assert [each.id for each in found] == ["web-4", "web-3", "web-2", "web-1", "web-0"]
        assert [each.created_at.second for each in found[1:]] == [3, 2, 1, 0]
        assert found[-1].created_at == NOON.replace(microsecond=0)
        await adapter.disconnect()

    async def test_an_invalid_time_is_reported(self, make: Make, run: Run) -> None:
        await run("CREATE TABLE agent_sessions (id TEXT PRIMARY KEY, created_at TEXT)")
        await run("INSERT INTO agent_sessions VALUES ('web-1', 'last Monday')")
        with pytest.raises(StoreError, match="agent_sessions has 'last Monday'"):
            await make().initialize()
        assert await run("SELECT * FROM agent_sessions") == [("web-1", "last Monday")]

    @FEW
    @given(steps=OPERATIONS)
    def test_the_adapter_behaves_like_the_in_memory_adapter(
        self, make: Make, steps: list[tuple[str, int, int]]
    ) -> None:
        check_against_in_memory(make, steps)

    async def test_every_query_uses_an_index(self, make: Make, run: Run, path: Path) -> None:
        adapter = make()
        await adapter.initialize()
        await adapter.disconnect()
        tables = resolve_tables(None, None)
        types = {role: dict.fromkeys((c.name for c in table.columns), "") for role, table in tables.items()}
        statements = build_statements(tables, SqliteDialect(), types)
        with closing(sqlite3.connect(path)) as connection:
            connection.create_function("tellback_now", 0, lambda: 0)
            for name, sql in statements.items():
                values = {column.name: 0 for table in tables.values() for column in table.columns}
                parameters = dict.fromkeys(("ttl", "expected", "count", "limit", "before", "after"), 1)
                plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", {**values, **parameters}).fetchall()
                steps = [row[3] for row in plan]
                scans = [each for each in steps if each.startswith("SCAN") and "CONSTANT" not in each]
                assert not [each for each in scans if "by_expiry" not in each], (name, steps)
                assert not [each for each in steps if "TEMP B-TREE" in each], (name, steps)


@SQLITE
async def test_a_killed_process_leaves_complete_turns(tmp_path: Path) -> None:
    path = str(tmp_path / "sessions.db")
    acknowledged_count = 0
    for _ in range(3):
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, path, stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(3):
            acknowledged_count = int(await child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        remaining_lines = (await child.stdout.read()).split()
        await child.wait()
        acknowledged_count = int(remaining_lines[-1]) if remaining_lines else acknowledged_count
        adapter = SqliteAdapter(path)
        await adapter.initialize()
        for n in range(4):
            found = await adapter.session_repository.get(f"web-{n}")
            assert found is not None
            assert found.version in (acknowledged_count, acknowledged_count + 1)
            texts = contents(await adapter.message_repository.list_by_session(f"web-{n}"))
            assert texts == [f"{turn}.{k}" for turn in range(1, found.version + 1) for k in range(20)]
            assert await adapter.session_repository.delete(f"web-{n}")
        await adapter.disconnect()


@SQLITE
async def test_a_lock_held_for_too_long_raises_store_busy_error(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    adapter = SqliteAdapter(path, busy_timeout=0.2)
    await adapter.initialize()
    saved = await adapter.save(make_session(version=1), [make_message("Hi")])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        results = await asyncio.gather(
            *(adapter.save(make_session(f"web-{n}", version=1), []) for n in range(20)), return_exceptions=True
        )
        assert {type(each) for each in results} == {StoreBusyError}
        assert "busy_timeout" in str(results[0])
        assert await adapter.session_repository.get("web-42") == saved  # readers do not wait
        other.execute("ROLLBACK")
    assert (await adapter.save(make_session(version=2), [])).version == 2
    await adapter.disconnect()


@SQLITE
async def test_unusable_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database at all " * 100)
    with pytest.raises(StoreCorruptError):
        await SqliteAdapter(tmp_path / "text.db").initialize()
    with pytest.raises(StoreUnavailableError):
        await SqliteAdapter(tmp_path / "nowhere" / "x.db").initialize()
    with pytest.raises(StoreUnavailableError):
        await SqliteAdapter(tmp_path).initialize()


@SQLITE
@pytest.mark.skipif(os.geteuid() == 0, reason="root can write to read-only files")
async def test_a_read_only_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    sqlite3.connect(path).close()
    os.chmod(path, 0o400)
    os.chmod(tmp_path, 0o500)
    with pytest.raises(StoreReadOnlyError):
        await SqliteAdapter(path).initialize()
    os.chmod(tmp_path, 0o700)


@SQLITE
@pytest.mark.parametrize(
    "database",
    [None, "", "  ", 5, b"x.db", "postgresql://a:secret@b/c", "file:x.db", "sqlite:///x.db?mode=ro", "a\x00b"],
)
def test_invalid_paths_are_rejected(database: Any) -> None:
    with pytest.raises(ConfigurationError, match="path") as caught:
        SqliteAdapter(database)
    assert "secret" not in str(caught.value)


@SQLITE
@pytest.mark.parametrize("busy_timeout", [-1, True, "5", float("nan"), None])
def test_an_invalid_busy_timeout_is_rejected(busy_timeout: Any) -> None:
    with pytest.raises(ConfigurationError):
        SqliteAdapter("x.db", busy_timeout=busy_timeout)


@SQLITE
def test_a_relative_path_is_resolved_once_and_works_in_another_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    adapter = SqliteAdapter("sqlite:///my%20sessions.db")

    async def save() -> None:
        await adapter.initialize()
        await adapter.save(make_session(version=1), [make_message("Hi")])

    async def read(adapter: PersistenceAdapter) -> None:
        await adapter.initialize()
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["Hi"]
        await adapter.disconnect()

    asyncio.run(save())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    asyncio.run(read(adapter))
    asyncio.run(read(adapter))
    asyncio.run(read(SqliteAdapter(tmp_path / "my sessions.db")))


@SQLITE
def test_the_adapter_imports_no_driver() -> None:
    program = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from tellback.sessions.sql.sqlite import SqliteAdapter\n"
        "SqliteAdapter(':memory:')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
