"""Row-level security on PostgreSQL: the database isolates users even if our statements have a bug."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tellback import Tellback
from tellback.errors import StoreError
from tellback.stores.postgres.schema import APP_ROLE
from tellback.types.access import Scope
from tests.integration.stores.assertions import assert_turn_runs_at_once, conversations_of, load_messages

TABLES = ("conversations", "messages", "events")
SCOPES = (
    Scope("acme", "web", "maya"),
    Scope("acme", "web", "noah"),
    Scope("acme", "ios", "maya"),
    Scope("other", "web", "maya"),
)


@pytest.fixture
async def populated_database(postgres_url: str) -> AsyncIterator[str]:
    """A database in which each scope has a conversation with one message."""
    async with Tellback(postgres_url) as tb:
        for scope in SCOPES:
            log = tb.user(scope.user_id, scope.tenant_id, scope.app_id).conversations
            conversation = await log.create("chat")
            await log.append_user_message(conversation.id, f"of {scope}")
        yield postgres_url


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, server_settings={"search_path": "tellback"})
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def as_app(url: str, scope: Scope | None = None, **settings: str) -> AsyncIterator[Any]:
    """A transaction under the role that our statements use."""
    if scope is not None:
        settings = {"tenant_id": scope.tenant_id, "app_id": scope.app_id, "user_id": scope.user_id}
    async with connected(url) as connection:
        await connection.execute(f"SET ROLE {APP_ROLE}")
        async with connection.transaction():
            for name, value in settings.items():
                await connection.execute("SELECT set_config($1, $2, true)", f"tellback.{name}", value)
            yield connection


async def visible_scopes(connection: Any, table: str) -> set[Scope]:
    rows = await connection.fetch(f"SELECT tenant_id, app_id, user_id FROM {table}")
    return {Scope(*row) for row in rows}


@pytest.mark.parametrize("table", TABLES)
async def test_a_transaction_without_a_scope_sees_no_rows(populated_database: str, table: str) -> None:
    async with as_app(populated_database) as connection:
        assert await visible_scopes(connection, table) == set()
    parts: list[dict[str, str]] = [{"tenant_id": "acme"}, {"tenant_id": "acme", "app_id": "web"}, {"user_id": "maya"}]
    for part in parts:
        async with as_app(populated_database, None, **part) as connection:
            assert await visible_scopes(connection, table) == set()


@pytest.mark.parametrize("table", TABLES)
async def test_a_transaction_sees_only_rows_of_its_scope(populated_database: str, table: str) -> None:
    for scope in SCOPES:
        async with as_app(populated_database, scope) as connection:
            assert await visible_scopes(connection, table) == {scope}
            assert await connection.execute(f"UPDATE {table} SET tenant_id = tenant_id") != "UPDATE 0"
    other = SCOPES[1]
    async with as_app(populated_database, SCOPES[0]) as connection:
        touched = await connection.execute(
            f"DELETE FROM {table} WHERE tenant_id = $1 AND app_id = $2 AND user_id = $3",
            other.tenant_id,
            other.app_id,
            other.user_id,
        )
        assert touched == "DELETE 0"


@pytest.mark.parametrize("table", TABLES)
async def test_rows_of_another_scope_cannot_be_inserted_and_rows_cannot_be_moved(
    populated_database: str, table: str
) -> None:
    async with connected(populated_database) as admin:
        columns = await admin.fetch(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = 'tellback' AND table_name = $1 AND is_identity = 'NO'",
            table,
        )
    names = [row[0] for row in columns]
    fresh = {"user_id": "'noah'", "id": "'stolen'", "seq": "seq + 1000", "position": "NULL"}
    values = ", ".join(fresh.get(name, name) for name in names)
    copy = f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table}"
    async with as_app(populated_database, SCOPES[0]) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute(copy)
    async with as_app(populated_database, SCOPES[0]) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute(f"UPDATE {table} SET user_id = 'noah'")


async def test_settings_end_with_their_transaction(populated_database: str) -> None:
    async with connected(populated_database) as connection:
        await connection.execute(f"SET ROLE {APP_ROLE}")
        async with connection.transaction():
            await connection.execute("SET LOCAL tellback.platform = 'on'")
            assert await visible_scopes(connection, "messages") == set(SCOPES)
        assert await visible_scopes(connection, "messages") == set()


async def test_the_role_owns_nothing_and_cannot_bypass_policies(populated_database: str) -> None:
    async with connected(populated_database) as admin:
        [role] = await admin.fetch("SELECT * FROM pg_roles WHERE rolname = $1", APP_ROLE)
        for right in ("rolsuper", "rolbypassrls", "rolcanlogin", "rolcreaterole", "rolcreatedb", "rolreplication"):
            assert role[right] is False, right
        owned_query = "SELECT count(*) FROM pg_class WHERE relowner = $1"
        assert await admin.fetchval(owned_query, role["oid"]) == 0
        memberships = "SELECT count(*) FROM pg_auth_members WHERE member = $1"
        assert await admin.fetchval(memberships, role["oid"]) == 0
        tables = await admin.fetch(
            "SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class"
            " WHERE relkind IN ('r', 'p') AND relnamespace = 'tellback'::regnamespace"
        )
        protected = {row["relname"] for row in tables if row["relrowsecurity"] and row["relforcerowsecurity"]}
        assert protected == {row["relname"] for row in tables} - {"tellback_migrations"}
    async with as_app(populated_database) as connection:
        for statement in (
            "ALTER TABLE messages DISABLE ROW LEVEL SECURITY",
            "DROP POLICY scope ON messages",
            "TRUNCATE events",
            "CREATE TABLE tellback.mine (id int)",
            "UPDATE tellback_migrations SET version = 0",
            "INSERT INTO tellback_migrations VALUES (7, 'mine', 0)",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                async with connection.transaction():
                    await connection.execute(statement)


async def test_all_writes_use_the_role(postgres_url: str) -> None:
    async with Tellback(postgres_url) as tb, connected(postgres_url) as admin:
        await admin.execute(
            "CREATE TABLE public.witnessed (who TEXT, what TEXT); GRANT INSERT ON public.witnessed TO PUBLIC"
        )
        await admin.execute(
            "CREATE FUNCTION public.witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " INSERT INTO public.witnessed VALUES (current_user, TG_TABLE_NAME || ' ' || TG_OP); RETURN NULL; END $$"
        )
        for table in TABLES:
            await admin.execute(
                f"CREATE TRIGGER witness AFTER INSERT OR UPDATE OR DELETE ON {table}"
                " FOR EACH ROW EXECUTE FUNCTION public.witness()"
            )
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "hello", "key")
        await assert_turn_runs_at_once(tb, conversation.id)
        await tb.events.read()
        await conversations_of(tb).close(conversation.id)
        recorded = await admin.fetch("SELECT DISTINCT who, what FROM public.witnessed")
        assert {row["who"] for row in recorded} == {APP_ROLE}
        assert {row["what"] for row in recorded} == {
            "conversations INSERT",
            "conversations UPDATE",
            "messages INSERT",
            "events INSERT",
            "events UPDATE",
        }


async def test_all_reads_obey_the_policies(postgres_url: str) -> None:
    """The tests connect as a superuser, to whom policies do not apply: only the role makes this policy effective."""
    async with Tellback(postgres_url) as tb, connected(postgres_url) as admin:
        conversation = await conversations_of(tb).create("chat")
        await conversations_of(tb).append_user_message(conversation.id, "hello")
        await load_messages(tb, conversation.id)
        for table in TABLES:
            await admin.execute(f"CREATE POLICY nothing ON {table} AS RESTRICTIVE FOR SELECT USING (false)")
        assert await conversations_of(tb).get(conversation.id) is None
        assert await conversations_of(tb).list() == []
        assert await tb.events.read() == []
        assert await admin.fetchval("SELECT count(*) FROM messages") == 1


async def test_the_database_rejects_a_statement_with_another_scope(populated_database: str) -> None:
    """Simulates a bug: the transaction has one user's scope, the values have another's."""
    async with Tellback(populated_database) as tb:
        own_scope, other_scope = SCOPES[0], SCOPES[1]
        [other_conversation] = await tb.user(
            other_scope.user_id, other_scope.tenant_id, other_scope.app_id
        ).conversations.list()
        engine: Any = tb.store._engine

        def statements_of_other_scope() -> Any:
            values = {"tenant_id": other_scope.tenant_id, "app_id": other_scope.app_id, "user_id": other_scope.user_id}
            found = yield "conversation_get", {**values, "id": other_conversation.id}
            assert found == []
            yield "event_insert", {**values, "type": "x", "subject_id": other_conversation.id, "data": "{}", "now": 0}

        with pytest.raises(StoreError, match="row-level security"):
            await engine.write(own_scope, statements_of_other_scope)


@pytest.mark.parametrize(
    "name", ["O'Hara", 'quo"te', "back\\slash", "'; SET tellback.platform = 'on", "\\'", "$$", "é😀"]
)
async def test_scopes_with_special_characters_are_isolated(postgres_url: str, name: str) -> None:
    async with Tellback(postgres_url) as tb:
        for user in (name, "maya"):
            log = tb.user(user, tenant_id=name, app_id=name).conversations
            conversation = await log.create("chat")
            await log.append_user_message(conversation.id, f"of {user}")
        log = tb.user(name, tenant_id=name, app_id=name).conversations
        [conversation] = await log.list()
        assert [message.text for message in await log.messages(conversation.id)] == [f"of {name}"]
        assert await tb.user(name).conversations.list() == []
        async with as_app(postgres_url, Scope(name, name, name)) as connection:
            assert await visible_scopes(connection, "messages") == {Scope(name, name, name)}
