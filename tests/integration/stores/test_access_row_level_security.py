"""Row-level security of access tables: users see only their own rows, and cannot change keys."""

from __future__ import annotations

import asyncpg
import pytest

from tellback import Tellback
from tellback.types.access import Scope
from tests.integration.stores.test_row_level_security import as_app

MAYA = Scope("acme", "web", "maya")
OTHERS = (Scope("acme", "web", "noah"), Scope("acme", "ios", "maya"), Scope("other", "web", "maya"))
TABLES = ("api_keys", "idempotent_responses", "rate_windows")


@pytest.fixture
async def populated_database(ready_postgres_url: str) -> str:
    """A database with a key and a response for each scope, a key for each app, and one rate limit."""
    async with Tellback(ready_postgres_url, worker=False) as tb:
        now = tb.clock()
        for scope in (MAYA, *OTHERS):
            tenant, app = scope.tenant_id, scope.app_id
            await tb.keys.create("user", tenant_id=tenant, app_id=app, user_id=scope.user_id)
            await tb.keys.create("admin", tenant_id=tenant, app_id=app)
            await tb.store.idempotency.begin(scope, "k", "f", now=now, lease_until=now)
        await tb.store.rate_windows.take("key_1", 1, 1, 1)
    return ready_postgres_url


@pytest.mark.parametrize("table", TABLES)
async def test_a_transaction_without_a_scope_sees_no_rows(populated_database: str, table: str) -> None:
    async with as_app(populated_database) as connection:
        assert await connection.fetch(f"SELECT * FROM {table}") == []


async def test_a_user_sees_its_own_keys_and_responses_and_no_rate_limits(populated_database: str) -> None:
    for scope in (MAYA, *OTHERS):
        async with as_app(populated_database, scope) as connection:
            for table in ("api_keys", "idempotent_responses"):
                [row] = await connection.fetch(f"SELECT tenant_id, app_id, user_id FROM {table}")
                assert Scope(*row) == scope
            assert await connection.fetch("SELECT * FROM rate_windows") == []


@pytest.mark.parametrize("change", ["UPDATE api_keys SET role = 'user'", "DELETE FROM api_keys"])
async def test_a_user_cannot_change_keys(populated_database: str, change: str) -> None:
    async with as_app(populated_database, MAYA) as connection:
        assert (await connection.execute(change)).endswith(" 0")


async def test_a_user_cannot_create_keys(populated_database: str) -> None:
    copy = (
        "INSERT INTO api_keys (id, tenant_id, app_id, user_id, role, name, digest, created_at)"
        " SELECT 'stolen', tenant_id, app_id, user_id, role, name, digest, created_at FROM api_keys"
    )
    async with as_app(populated_database, MAYA) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute(copy)


async def test_responses_cannot_be_moved_to_another_user(populated_database: str) -> None:
    async with as_app(populated_database, MAYA) as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute("UPDATE idempotent_responses SET user_id = 'noah'")
