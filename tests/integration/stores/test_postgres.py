"""PostgreSQL roles, schemas and connections."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from tellback import ChatRequest, Tellback
from tellback.errors import SchemaVersionError, StoreUnavailableError
from tellback.stores import PostgresStore
from tellback.stores.postgres import engine as engines
from tellback.testing import FunctionModel, ScriptedModel, says
from tests.support.servers.postgres import PostgresServer


def database(url: str) -> str:
    return url.rpartition("/")[2]


def as_user(url: str, user: str) -> str:
    return url.replace("//postgres@", f"//{user}@")


async def write_and_read(url: str) -> None:
    async with Tellback(url) as tb:
        conversations = tb.user("maya").conversations
        conversation = await conversations.create("chat")
        await conversations.append_user_message(conversation.id, "hello")
        assert [message.text for message in await conversations.messages(conversation.id)] == ["hello"]
        assert [event.type for event in await tb.events.read()][-1] == "message.appended"


@pytest.mark.parametrize("schema", ["tellback", "MySchema", "my schema", "public,x", 'quo"te', "naïve"])
async def test_tables_are_created_in_the_configured_schema(
    postgres_server: PostgresServer, postgres_url: str, schema: str
) -> None:
    from urllib.parse import quote

    await write_and_read(f"{postgres_url}?schema={quote(schema)}")
    found = postgres_server.psql(
        "SELECT schemaname FROM pg_tables WHERE tablename = 'messages'", database(postgres_url)
    )
    assert found == schema


async def test_two_schemas_of_one_database_are_separate(postgres_url: str) -> None:
    async with Tellback(f"{postgres_url}?schema=one") as first_tb, Tellback(f"{postgres_url}?schema=two") as second_tb:
        conversation = await first_tb.user("maya").conversations.create("chat")
        assert await second_tb.user("maya").conversations.get(conversation.id) is None
        assert await second_tb.events.read() == []


async def test_a_login_needs_only_the_role(postgres_server: PostgresServer, postgres_url: str) -> None:
    name = database(postgres_url)
    await write_and_read(postgres_url)
    for statement in (
        f"CREATE ROLE app_{name} LOGIN",
        f"CREATE ROLE quiet_{name} LOGIN NOINHERIT",
        f"CREATE ROLE stranger_{name} LOGIN",
        f"GRANT tellback_app TO app_{name}, quiet_{name}",
    ):
        postgres_server.psql(statement)
    try:
        await write_and_read(as_user(postgres_url, f"app_{name}"))
        await write_and_read(as_user(postgres_url, f"quiet_{name}"))
        with pytest.raises(StoreUnavailableError, match="GRANT tellback_app"):
            await write_and_read(as_user(postgres_url, f"stranger_{name}"))
    finally:
        postgres_server.psql(f"DROP ROLE app_{name}, quiet_{name}, stranger_{name}")


async def test_a_user_without_privileges_can_use_a_prepared_schema(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    name = database(postgres_url)
    owner_role = f"owner_{name}"
    await write_and_read(f"{postgres_url}?schema=first")  # creates the role
    postgres_server.psql(f"CREATE ROLE {owner_role} LOGIN")
    try:
        with pytest.raises(SchemaVersionError, match="create both first"):
            await write_and_read(as_user(postgres_url, owner_role))
        postgres_server.psql(f"CREATE SCHEMA tellback AUTHORIZATION {owner_role}", name)
        postgres_server.psql(f"GRANT tellback_app TO {owner_role}")
        await write_and_read(as_user(postgres_url, owner_role))
        owners = postgres_server.psql("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'tellback'", name)
        assert owners == owner_role
    finally:
        postgres_server.psql(f"DROP OWNED BY {owner_role} CASCADE", name)
        postgres_server.psql(f"DROP ROLE {owner_role}")


async def test_a_turn_survives_a_short_break_of_the_listener_connection(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    release, turn_started = asyncio.Event(), asyncio.Event()

    async def answer(request: ChatRequest) -> str:
        turn_started.set()
        await release.wait()
        return "first"

    async with Tellback(postgres_url) as first_tb, Tellback(postgres_url) as second_tb:
        conversation = await first_tb.user("maya").conversations.create("chat")
        first = asyncio.create_task(
            first_tb.user("maya").conversations.run_turn(conversation.id, FunctionModel(answer), "1")
        )
        await asyncio.wait_for(turn_started.wait(), 10)
        second = asyncio.create_task(
            second_tb.user("maya").conversations.run_turn(conversation.id, ScriptedModel([says("second")]), "2")
        )
        postgres_server.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'", database(postgres_url)
        )
        await asyncio.sleep(engines.INSTANCE_GRACE_SECONDS + 0.5)
        release.set()
        await asyncio.gather(first, second)
        texts = [message.text for message in await first_tb.user("maya").conversations.raw_turns(conversation.id)]
        assert texts == ["1", "first", "2", "second"]


async def test_concurrent_checks_all_see_a_dead_instance(postgres_url: str) -> None:
    async with Tellback(postgres_url) as tb:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + engines.INSTANCE_GRACE_SECONDS + 1

        async def read_owner_states() -> set[bool | None]:
            seen = set()
            while loop.time() < deadline:
                seen.add(await tb.store.is_instance_alive("pg|123456789"))
                await asyncio.sleep(0.01)
            return seen

        for seen in await asyncio.gather(*(read_owner_states() for _ in range(8))):
            assert seen == {None, False}


async def test_the_grace_period_restarts_after_a_long_time(postgres_url: str) -> None:
    async with Tellback(postgres_url) as tb:
        assert await tb.store.is_instance_alive("pg|123456789") is None
        await asyncio.sleep(engines.INSTANCE_GRACE_SECONDS + 0.5)
        assert await tb.store.is_instance_alive("pg|123456789") is None


async def test_the_listener_connection_reconnects_after_failures(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres_url)
    engine: Any = store._engine
    async with Tellback(store) as tb:
        conversations = tb.user("maya").conversations
        conversation = await conversations.create("chat")
        allowed = engine._prepare

        async def refuse_connection(connection: Any) -> None:
            raise StoreUnavailableError("not now")

        monkeypatch.setattr(engine, "_prepare", refuse_connection)
        with pytest.raises(StoreUnavailableError, match="listener connection"):
            await conversations.run_turn(conversation.id, ScriptedModel([says("never")]), "Hi")
        monkeypatch.setattr(engine, "_prepare", allowed)
        assert (
            str(await conversations.run_turn(conversation.id, ScriptedModel([says("Hello!")]), "Hi again")) == "Hello!"
        )


async def test_cancellation_leaves_no_connection_in_a_transaction(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with Tellback(f"{postgres_url}?pool_size=2") as tb:
        conversations = tb.user("maya").conversations
        conversation = await conversations.create("chat")
        for n in range(60):
            append_task = asyncio.ensure_future(conversations.append_user_message(conversation.id, str(n)))
            await asyncio.sleep(n * 0.0001)
            append_task.cancel()
            await asyncio.gather(append_task, return_exceptions=True)
        last_message = await conversations.append_user_message(conversation.id, "after")
        messages = await conversations.messages(conversation.id)
        assert [message.seq for message in messages] == list(range(1, last_message.seq + 1))
        states = "SELECT DISTINCT state FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle%'"
        assert postgres_server.psql(states, database(postgres_url)) == "idle"


async def test_use_in_another_event_loop_raises_configuration_error(postgres_url: str) -> None:
    from tellback import ConfigurationError

    async with Tellback(postgres_url) as tb:
        conversations = tb.user("maya").conversations
        with pytest.raises(ConfigurationError, match="another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(conversations.list()))


async def test_a_connection_released_by_the_pool_hides_no_error() -> None:
    from tellback.stores.postgres.connection import roll_back

    class ReleasedConnection:
        """A connection as the driver leaves it after the pool took it back on a timeout."""

        def is_closed(self) -> bool:
            return False

        async def execute(self, sql: str) -> None:
            raise asyncpg.InterfaceError("cannot call Connection.execute(): connection has been released")

        def terminate(self) -> None:
            raise asyncpg.InterfaceError("cannot call Connection.terminate(): connection has been released")

    await roll_back(ReleasedConnection())
