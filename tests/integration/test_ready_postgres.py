"""A database that tests share in sequence is empty for each of them, or is replaced."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tellback import Tellback
from tests.support.servers.database_pool import Connection, DatabasePool


@pytest.fixture
def databases(prepared_databases: DatabasePool) -> Iterator[DatabasePool]:
    """The pool of the run; these tests must not affect the databases of other tests."""
    yield prepared_databases
    with prepared_databases.lend() as url:
        assert rows(url) == 0


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def rows(url: str) -> int:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT FROM tellback.messages").rowcount


async def append_message(url: str) -> None:
    async with Tellback(url, embedder=None) as tb:
        log = tb.user("maya").conversations
        await log.append_user_message((await log.create("chat")).id, "Hello")
        assert await tb.events.read()  # the first read assigns positions to events


def used_sequences(url: str) -> list[str]:
    """Return the sequences that were used."""
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT sequencename::text FROM pg_sequences WHERE last_value IS NOT NULL")
        return [row[0] for row in found]


async def test_rows_are_removed_and_sequences_reset(databases: DatabasePool) -> None:
    with databases.lend() as first:
        await append_message(first)
        assert rows(first) == 1
        assert "event_positions" in used_sequences(first)
    with databases.lend() as second:
        assert second == first
        assert rows(second) == 0
        assert used_sequences(second) == []
        await append_message(second)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE tellback.messages ADD COLUMN mood TEXT",
        "ALTER TABLE tellback.messages DISABLE ROW LEVEL SECURITY",
        "CREATE TABLE other (id BIGINT)",
        "DROP TABLE tellback.messages CASCADE",
        "DROP EXTENSION IF EXISTS vector CASCADE; CREATE SCHEMA instead",
        "GRANT SELECT ON tellback.messages TO PUBLIC",
        "UPDATE tellback.tellback_migrations SET version = version + 100 WHERE version = 1",
        "DELETE FROM tellback.tellback_migrations WHERE version = 1",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 7', current_database()); END $$",
        "COMMENT ON TABLE tellback.procrastinate_jobs IS 'old'",
    ],
)
def test_a_changed_database_is_replaced(databases: DatabasePool, statement: str) -> None:
    with databases.lend() as first:
        execute(first, statement)
    with databases.lend() as second:
        assert second != first


def test_a_database_with_open_connections_is_replaced(databases: DatabasePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.servers.database_pool.LEAVING_SECONDS", 0.05)
    with databases.lend() as first:
        open_connection = psycopg.connect(first)
    with databases.lend() as second:
        assert second != first
    with pytest.raises(psycopg.OperationalError):
        open_connection.execute("SELECT 1")
    open_connection.close()


def test_a_database_with_very_many_rows_is_replaced(databases: DatabasePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.servers.database_pool.MANY_ROWS", 2)
    with databases.lend() as first:
        execute(first, "INSERT INTO tellback.procrastinate_workers (last_heartbeat) VALUES (now()), (now()), (now())")
    with databases.lend() as second:
        assert second != first


def test_concurrent_tests_get_different_databases(databases: DatabasePool, postgres_admin: Connection) -> None:
    with databases.lend() as first, databases.lend() as second:
        assert first != second
    names = {row[0] for row in postgres_admin.execute("SELECT datname FROM pg_database")}
    assert {url.rpartition("/")[2] for url in (first, second)} <= names
