"""Sessions in PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from hypothesis import given
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tellback.errors import (
    ConfigurationError,
    SessionConflictError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.sessions.sql import postgres
from tellback.sessions.sql.postgres import PostgresAdapter
from tellback.testing.sessions import MakeAdapter, SessionAdapterConformance, SessionRestartConformance
from tellback.testing.sessions.repositories import NOON, contents, make_message, make_session
from tests.integration.sessions.sql_tables_contract import (
    FEW,
    OPERATIONS,
    Make,
    Run,
    SqlTablesContract,
    check_against_in_memory,
)
from tests.support.fault_proxy import FaultProxy
from tests.support.servers.postgres import PostgresServer

POSTGRES = pytest.mark.backend("PostgreSQL")
_numbers = itertools.count(1)


@pytest.fixture
def schema(postgres_server: PostgresServer) -> Iterator[str]:
    """A schema used by this test alone: faster to create than a database."""
    name = f"test_{next(_numbers)}"
    yield name
    postgres_server.psql(f"SET client_min_messages = error; DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.url()


def adapters_of(url: Any, schema: str | None = None) -> MakeAdapter:
    return lambda prefix="one", **ttls: PostgresAdapter(
        url, schema=schema, tables={"sessions": f"{prefix}_sessions", "messages": f"{prefix}_messages"}, **ttls
    )


@POSTGRES
class TestPostgres(SessionAdapterConformance):
    @pytest.fixture
    def make_adapter(self, url: str, schema: str) -> MakeAdapter:
        return adapters_of(url, schema)


OPENED = 8
"""How many connections a test of the suite may need."""


class PassedDatabase:
    """Tests of adapters on connections or a pool that the application opened: `databases` yields them."""

    @pytest.fixture
    def make_adapter(self, databases: Iterator[Any], schema: str) -> MakeAdapter:
        return lambda prefix="one", **ttls: adapters_of(next(databases), schema)(prefix, **ttls)


@POSTGRES
class TestAsyncpgConnection(PassedDatabase, SessionAdapterConformance):
    @pytest.fixture
    async def databases(self, url: str) -> AsyncIterator[Iterator[Any]]:
        opened = [await asyncpg.connect(url) for _ in range(OPENED)]
        yield iter(opened)
        for each in opened:
            await each.close()


@POSTGRES
class TestPsycopgConnection(PassedDatabase, SessionAdapterConformance):
    @pytest.fixture
    async def databases(self, url: str) -> AsyncIterator[Iterator[Any]]:
        opened = [await psycopg.AsyncConnection.connect(url, row_factory=dict_row) for _ in range(OPENED)]
        yield iter(opened)
        for each in opened:
            assert each.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            await each.close()


@POSTGRES
class TestPsycopgPool(PassedDatabase, SessionAdapterConformance):
    @pytest.fixture
    async def databases(self, url: str) -> AsyncIterator[Iterator[Any]]:
        async with AsyncConnectionPool(url, min_size=0, max_size=4, open=False) as pool:
            yield itertools.repeat(pool)


@POSTGRES
class TestPostgresRestart(SessionRestartConformance):
    @pytest.fixture
    def server(self, own_postgres: PostgresServer) -> PostgresServer:
        return own_postgres

    @pytest.fixture
    def make_adapter(self, own_postgres: PostgresServer) -> MakeAdapter:
        return adapters_of(own_postgres.url())


@POSTGRES
class TestPostgresTables(SqlTablesContract):
    moment = "TIMESTAMPTZ"
    json = "JSON"

    @pytest.fixture
    def make(self, url: str, schema: str) -> Make:
        return lambda **options: PostgresAdapter(url, schema=schema, **options)

    @pytest.fixture
    def run(self, url: str, schema: str) -> Run:
        async def run(sql: str) -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(url, server_settings={"search_path": schema})
            try:
                await connection.execute(f"SET client_min_messages = error; CREATE SCHEMA IF NOT EXISTS {schema}")
                return [tuple(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()

        return run

    async def _columns(self, run: Run, table: str) -> set[str]:
        found = "SELECT column_name::text FROM information_schema.columns WHERE table_schema = current_schema()"
        return {name for (name,) in await run(f"{found} AND table_name = '{table}'")}

    @pytest.mark.parametrize("json", ["JSONB", "TEXT"])
    async def test_existing_tables_with_other_column_types_work(
        self, make: Make, run: Run, monkeypatch: pytest.MonkeyPatch, json: str
    ) -> None:
        self.moment, self.json = "TIMESTAMP", json
        monkeypatch.setenv("PGTZ", "Asia/Tokyo")
        await self.test_a_database_of_version_1_is_migrated_with_its_data(make, run)
        (row,) = await run("SELECT created_at FROM agent_sessions WHERE id = 'web-1'")
        assert row[0] == NOON.replace(tzinfo=None)

    @FEW
    @given(steps=OPERATIONS)
    def test_the_adapter_behaves_like_the_in_memory_adapter(
        self, make: Make, steps: list[tuple[str, int, int]]
    ) -> None:
        check_against_in_memory(make, steps)

    async def test_every_query_uses_an_index(self, make: Make, run: Run) -> None:
        adapter = make()
        await adapter.initialize()
        names = {
            name for (name,) in await run("SELECT indexname::text FROM pg_indexes WHERE schemaname = current_schema()")
        }
        assert names >= {"agent_sessions_pkey", "agent_messages_pkey", "agent_sessions_by_user"}
        assert not {"agent_sessions_by_id", "agent_messages_by_position"} & names  # the primary keys cover them
        await run(
            "INSERT INTO agent_sessions (id, user_id, created_at, updated_at)"
            " SELECT 's' || n, 'u' || n, now(), now() FROM generate_series(1, 5000) n"
        )
        await run(
            "INSERT INTO agent_messages (id, session_id, role, content, created_at, position, expires_at)"
            " SELECT 'm' || n, 's' || n % 50, 'user', 'Hi', now(), n, now() + interval '1 day'"
            " FROM generate_series(1, 5000) n"
        )
        await run("ANALYZE agent_sessions")
        await run("ANALYZE agent_messages")
        for question in (
            "SELECT * FROM agent_sessions WHERE user_id = 'u7' ORDER BY created_at DESC, id COLLATE \"C\" DESC LIMIT 1",
            "SELECT position FROM agent_messages WHERE session_id = 's7' ORDER BY position DESC LIMIT 1",
            "SELECT id FROM agent_messages WHERE expires_at <= statement_timestamp() ORDER BY expires_at LIMIT 1000",
        ):
            plan = "\n".join(line for (line,) in await run(f"EXPLAIN {question}"))
            assert "Seq Scan" not in plan, plan
        await adapter.disconnect()


@POSTGRES
async def test_without_a_schema_option_the_first_schema_of_the_search_path_is_used(postgres_url: str) -> None:
    adapter = PostgresAdapter(postgres_url)
    await adapter.initialize()
    await adapter.save(make_session(version=1), [make_message("Hi")])
    await adapter.disconnect()
    other = PostgresAdapter(postgres_url, schema="public")
    await other.initialize()
    assert contents(await other.message_repository.list_by_session("web-42")) == ["Hi"]
    await other.disconnect()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("DROP SCHEMA public CASCADE")
    await connection.close()
    with pytest.raises(ConfigurationError, match="schema="):
        await adapter.initialize()


@POSTGRES
async def test_a_passed_pool_is_used_and_stays_open(url: str, schema: str) -> None:
    async def prepare(connection: Any) -> None:
        for name in ("json", "jsonb"):
            await connection.set_type_codec(name, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    async with asyncpg.create_pool(url, min_size=0, max_size=3, init=prepare) as pool:
        adapter = PostgresAdapter(pool, schema=schema)
        await adapter.initialize()
        data = {"to": "Rome", "n": [1, 1.0]}
        saved = await adapter.save(make_session(version=1, collected_data=data), [make_message("Hi", event={"a": "b"})])
        assert saved.collected_data == data
        (found,) = await adapter.message_repository.list_by_session("web-42")
        assert found.event == {"a": "b"}
        await asyncio.gather(*(adapter.save(make_session(f"s{n}", version=1), []) for n in range(30)))
        await adapter.disconnect()
        with pytest.raises(StoreClosedError, match="initialize"):
            await adapter.session_repository.get("web-42")
        assert await pool.fetchval("SELECT 1") == 1
        assert pool.get_idle_size() == pool.get_size()
    with pytest.raises(ConfigurationError, match="not open"):
        await adapter.initialize()
    unopened = asyncpg.create_pool(url, min_size=0)
    with pytest.raises(ConfigurationError, match="not open"):
        await PostgresAdapter(unopened).initialize()


@asynccontextmanager
async def opened(kind: str, url: str) -> AsyncIterator[Any]:
    """A connection of a driver, and functions that run SQL on it."""
    if kind == "asyncpg":
        connection = await asyncpg.connect(url)
        yield connection, connection.execute, connection.fetchval
        await connection.close()
        return
    async with await psycopg.AsyncConnection.connect(url, autocommit=kind == "psycopg autocommit") as other:

        async def fetch(sql: str) -> Any:
            row = await (await other.execute(sql)).fetchone()
            return row and row[0]

        yield other, other.execute, fetch


KINDS = ["asyncpg", "psycopg", "psycopg autocommit"]


@POSTGRES
@pytest.mark.parametrize("kind", KINDS)
async def test_a_passed_connection_is_used_and_stays_open(kind: str, url: str, schema: str) -> None:
    async with opened(kind, url) as (connection, _, fetch):
        adapter = PostgresAdapter(connection, schema=schema)
        await adapter.initialize()
        data = {"to": "Rome", "n": [1, 1.0]}
        saved = await adapter.save(make_session(version=1, collected_data=data), [make_message("Hi", event={"a": "b"})])
        assert saved.collected_data == data
        await asyncio.gather(*(adapter.save(make_session(f"s{n}", version=1), []) for n in range(30)))
        await adapter.disconnect()
        with pytest.raises(StoreClosedError, match="initialize"):
            await adapter.session_repository.get("web-42")
        assert await fetch(f"SELECT count(*) FROM {schema}.agent_sessions") == 31
    with pytest.raises(ConfigurationError, match="connection is closed"):
        await adapter.initialize()


@POSTGRES
@pytest.mark.parametrize("kind", KINDS)
async def test_a_save_becomes_part_of_a_transaction_of_the_application(kind: str, url: str, schema: str) -> None:
    async with opened(kind, url) as (connection, execute, fetch):
        adapter, other = PostgresAdapter(connection, schema=schema), PostgresAdapter(url, schema=schema)
        await adapter.initialize()
        await other.initialize()
        for last in ("ROLLBACK", "COMMIT"):
            await execute("BEGIN")
            await execute(f"CREATE TABLE {schema}.orders (id TEXT)")
            saved = await adapter.save(make_session(version=1), [make_message("Hi")])
            with pytest.raises(SessionConflictError):
                await adapter.save(make_session(version=1), [make_message("lost")])
            assert await other.session_repository.get("web-42") is None
            await execute(last)
        assert await other.session_repository.get("web-42") == saved
        assert contents(await other.message_repository.list_by_session("web-42")) == ["Hi"]
        assert await fetch(f"SELECT count(*) FROM {schema}.orders") == 0
        await other.disconnect()


@POSTGRES
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_transaction_of_the_application_is_reported_and_stays_its_own(
    kind: str, url: str, schema: str
) -> None:
    async with opened(kind, url) as (connection, execute, fetch):
        adapter = PostgresAdapter(connection, schema=schema)
        await adapter.initialize()
        await execute("BEGIN")
        with pytest.raises((asyncpg.PostgresError, psycopg.Error)):
            await execute("SELECT nothing")
        with pytest.raises(StoreError, match="aborted"):
            await adapter.session_repository.get("x")
        with pytest.raises(StoreError, match="aborted"):
            await adapter.save(make_session(version=1), [])
        await execute("ROLLBACK")
        assert await adapter.session_repository.get("x") is None
        assert await fetch("SELECT 1") == 1


@POSTGRES
@pytest.mark.parametrize("kind", KINDS)
async def test_a_lost_connection_of_the_application_is_reported(
    kind: str, url: str, schema: str, postgres_server: PostgresServer
) -> None:
    async with opened(kind, url) as (connection, _, fetch):
        adapter = PostgresAdapter(connection, schema=schema)
        await adapter.initialize()
        pid = await fetch("SELECT pg_backend_pid()")
        if kind == "psycopg":
            await connection.commit()
        postgres_server.psql(f"SELECT pg_terminate_backend({pid}, 5000)")
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                await adapter.save(make_session(version=1), [])


@POSTGRES
async def test_a_connection_that_a_psycopg_pool_lost_is_replaced(
    url: str, schema: str, postgres_server: PostgresServer
) -> None:
    async with AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
        adapter = PostgresAdapter(pool, schema=schema)
        await adapter.initialize()
        async with pool.connection() as connection:
            pid = connection.info.backend_pid
        postgres_server.psql(f"SELECT pg_terminate_backend({pid}, 5000)")
        saved = await adapter.save(make_session(version=1), [make_message("Hi")])
        assert await adapter.session_repository.get("web-42") == saved
        await adapter.disconnect()
        async with pool.connection() as connection:
            assert not connection.closed
    with pytest.raises(ConfigurationError, match="pool is not open"):
        await adapter.initialize()


@POSTGRES
async def test_waiting_too_long_for_a_psycopg_connection_raises_store_busy_error(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncConnectionPool(url, min_size=1, max_size=1, open=False) as pool:
        adapter = PostgresAdapter(pool, schema=schema)
        await adapter.initialize()
        monkeypatch.setattr("tellback.sessions.sql.psycopg.ACQUIRE_SECONDS", 0.3)
        async with pool.connection():
            with pytest.raises(StoreBusyError, match="size of the pool"):
                await adapter.session_repository.get("web-42")
        assert await adapter.session_repository.get("web-42") is None


@POSTGRES
def test_a_synchronous_connection_is_rejected_without_showing_the_password(url: str) -> None:
    with psycopg.connect(url) as connection, pytest.raises(ConfigurationError, match="It is not asynchronous"):
        PostgresAdapter(connection)


@POSTGRES
async def test_a_pool_of_another_event_loop_is_rejected(url: str) -> None:
    pool = await asyncio.to_thread(asyncio.run, _pool(url))
    with pytest.raises(ConfigurationError, match="event loop"):
        await PostgresAdapter(pool).initialize()


async def _pool(url: str) -> asyncpg.Pool:
    return await asyncpg.create_pool(url, min_size=0)


@POSTGRES
async def test_use_in_another_event_loop_raises_an_error(url: str, schema: str) -> None:
    adapter = PostgresAdapter(url, schema=schema)
    await adapter.initialize()

    async def get() -> object:
        return await adapter.session_repository.get("web-42")

    with pytest.raises(ConfigurationError, match="event loop"):
        await asyncio.to_thread(asyncio.run, get())
    with pytest.raises(ConfigurationError, match="event loop"):
        await asyncio.to_thread(asyncio.run, adapter.initialize())
    assert await get() is None
    await adapter.disconnect()


@POSTGRES
def test_the_adapter_can_be_reused_after_its_event_loop_ended(url: str, schema: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from tellback.sessions.sql.postgres import PostgresAdapter\n"
        "from tellback.testing.sessions.repositories import make_session\n"
        "adapter = PostgresAdapter(sys.argv[1], schema=sys.argv[2])\n"
        "async def turn(version, end):\n"
        "    await adapter.initialize()\n"
        "    print((await adapter.save(make_session(version=version), [])).version)\n"
        "    if end: await adapter.disconnect()\n"
        "asyncio.run(turn(1, False)); asyncio.run(turn(2, True)); asyncio.run(turn(3, True))"
    )
    command = [sys.executable, "-c", program, url, schema]
    completed = subprocess.run(command, check=True, timeout=50, capture_output=True, text=True)
    assert completed.stdout.split() == ["1", "2", "3"], completed.stderr


@POSTGRES
@pytest.mark.parametrize(
    "database",
    [
        None,
        5,
        "",
        "sessions.db",
        "mysql://a:secret@b/c",
        "postgresql://app:secret@host:port/db",
        "postgresql://app:s#ecret@host/db",
        "postgresql://app:1/secret@host/db",
        "postgresql://app:1?secret@host/db",
        "postgresql://app:secret@[::1/db",
    ],
)
def test_invalid_databases_are_rejected_without_showing_the_password(database: Any) -> None:
    with pytest.raises(ConfigurationError, match="PostgresAdapter needs") as caught:
        PostgresAdapter(database)
    assert "ecret" not in str(caught.value)


@POSTGRES
async def test_an_invalid_url_setting_is_rejected(url: str) -> None:
    adapter = PostgresAdapter(f"{url}?sslmode=perhaps&password=secret")
    with pytest.raises(ConfigurationError, match="URL") as caught:
        await adapter.initialize()
    assert "secret" not in str(caught.value)


@POSTGRES
@pytest.mark.parametrize("options", [{"pool_size": 0}, {"pool_size": "5"}, {"schema": 'x"; DROP'}, {"schema": ""}])
def test_invalid_options_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        PostgresAdapter("postgresql://db/prod", **options)


@POSTGRES
async def test_a_rejected_login_is_reported_without_the_password(postgres_server: PostgresServer) -> None:
    wrong_user_url = postgres_server.url(user="stranger:secret")
    nowhere = postgres_server.url("nowhere", user="postgres:secret")
    unreachable_url = "postgresql://postgres:secret@127.0.0.1:1/postgres"
    for url in (wrong_user_url, nowhere, unreachable_url):
        adapter = PostgresAdapter(url)
        with pytest.raises(StoreUnavailableError) as caught:
            await adapter.initialize()
        assert "secret" not in str(caught.value)
        with pytest.raises(StoreClosedError):
            await adapter.session_repository.get("web-42")


@POSTGRES
@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_commit_whose_answer_is_lost_is_in_doubt(url: str, schema: str, is_committed: bool) -> None:
    async with FaultProxy(url) as proxy:
        adapter = PostgresAdapter(proxy.url, schema=schema)
        await adapter.initialize()
        proxy.trap(b"COMMIT\x00", "pass and cut" if is_committed else "cut")
        with pytest.raises(StoreUnavailableError, match="load the session again") as caught:
            await adapter.save(make_session(version=1), [make_message("Hi")])
        assert caught.value.in_doubt
        found = await adapter.session_repository.get("web-42")
        assert (found is not None) is is_committed
        assert len(await adapter.message_repository.list_by_session("web-42")) == is_committed
        await adapter.disconnect()


@POSTGRES
@pytest.mark.parametrize("marker", [b"BEGIN", b"UPDATE", b"INSERT", b"DESC LIMIT 1"])
async def test_a_connection_lost_before_the_commit_is_replaced(url: str, schema: str, marker: bytes) -> None:
    async with FaultProxy(url) as proxy:
        adapter = PostgresAdapter(proxy.url, schema=schema)
        await adapter.initialize()
        proxy.trap(marker, "pass and cut")
        saved = await adapter.save(make_session(version=1), [make_message("one"), make_message("two")])
        assert proxy.triggered == 1
        assert saved.message_count == 2
        assert contents(await adapter.message_repository.list_by_session("web-42")) == ["one", "two"]
        proxy.trap(b"SELECT", "cut")
        assert await adapter.session_repository.get("web-42") == saved
        await adapter.disconnect()


@POSTGRES
async def test_a_server_that_does_not_answer_times_out(url: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "STATEMENT_SECONDS", 0.5)
    async with FaultProxy(url) as proxy:
        adapter = PostgresAdapter(proxy.url, schema=schema)
        await adapter.initialize()
        for marker, in_doubt in ((b"READ COMMITTED", False), (b"DESC LIMIT 1", False), (b"COMMIT\x00", True)):
            proxy.trap(marker, "pass and say nothing")
            with pytest.raises(StoreUnavailableError, match="in time") as caught:
                await adapter.save(make_session(version=1), [make_message("Hi")])
            assert caught.value.in_doubt == in_doubt
            assert (await adapter.session_repository.get("web-42") is not None) is in_doubt
        proxy.trap(b"SELECT", "pass and say nothing")
        with pytest.raises(StoreUnavailableError, match="in time"):
            await adapter.session_repository.list_by_user("maya")
        assert len(await adapter.session_repository.list_by_user("maya")) == 1
        await adapter.disconnect()


@POSTGRES
async def test_waiting_too_long_for_a_connection_raises_store_busy_error(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "ACQUIRE_SECONDS", 0.3)
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        adapter = PostgresAdapter(pool, schema=schema)
        await adapter.initialize()
        async with pool.acquire():
            with pytest.raises(StoreBusyError, match="size of the pool"):
                await adapter.session_repository.get("web-42")
        assert await adapter.session_repository.get("web-42") is None
        await adapter.disconnect()


@POSTGRES
async def test_a_read_only_database_is_reported(postgres_server: PostgresServer, postgres_url: str) -> None:
    adapter = PostgresAdapter(postgres_url)
    await adapter.initialize()
    saved = await adapter.save(make_session(version=1), [])
    await adapter.disconnect()
    name = postgres_url.rpartition("/")[2]
    postgres_server.psql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await adapter.initialize()  # there is nothing to create
    assert await adapter.session_repository.get("web-42") == saved
    with pytest.raises(StoreReadOnlyError):
        await adapter.save(make_session(version=2), [])
    await adapter.disconnect()


@POSTGRES
async def test_a_constraint_violation_is_reported_with_the_servers_message(url: str, schema: str) -> None:
    adapter = PostgresAdapter(url, schema=schema)
    await adapter.initialize()
    connection = await asyncpg.connect(url)
    await connection.execute(f"ALTER TABLE {schema}.agent_messages ADD CHECK (content <> 'no')")
    await connection.close()
    with pytest.raises(StoreError, match="check constraint") as caught:
        await adapter.save(make_session(version=1), [make_message("yes"), make_message("no")])
    assert not caught.value.in_doubt
    assert await adapter.session_repository.get("web-42") is None
    await adapter.disconnect()


@POSTGRES
def test_a_missing_driver_raises_missing_extra_error() -> None:
    program = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from tellback.errors import MissingExtraError\n"
        "try: import tellback.sessions.sql.postgres\n"
        "except MissingExtraError as error: print(error)"
    )
    completed = subprocess.run([sys.executable, "-c", program], check=True, timeout=50, capture_output=True, text=True)
    assert "tellback[postgres]" in completed.stdout
    assert "adapter" in completed.stdout
