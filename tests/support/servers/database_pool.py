"""PostgreSQL databases with this release's tables, emptied after each test and reused.

Creating a database and its tables takes longer than most tests that need one. If a test left anything but rows (a
changed table, a setting, a connection), its database is replaced.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from tellback.jobs.postgres import prepare_schema
from tellback.stores import open_store
from tellback.stores.postgres import PostgresStore
from tests.support.servers.postgres import PostgresServer

TEMPLATE = "ready_template"
MAX_USES = 200
"""How often a database is used: deleted rows take space until the server's vacuum runs."""
MANY_ROWS = 2_000
"""A database with more rows is replaced: its planner statistics would affect later tests."""
LEAVING_SECONDS = 2.0
"""How long to wait for the connections of a test to close."""

_CATALOGUES = (
    *("pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_default_acl", "pg_description", "pg_enum"),
    *("pg_extension", "pg_index", "pg_namespace", "pg_policy", "pg_proc", "pg_rewrite", "pg_trigger", "pg_type"),
)
_MIGRATIONS = "tellback.tellback_migrations"

_SHAPE = "SELECT {}, (SELECT xmin::text FROM pg_database WHERE datname = current_database()), {}".format(
    # Every change of a row has a later transaction id; the row count detects deleted rows.
    ", ".join(
        f"(SELECT count(*) || ' ' || max(xmin::text::bigint) FROM {name})" for name in (*_CATALOGUES, _MIGRATIONS)
    ),
    "(SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = setdatabase"
    " WHERE datname = current_database())",
)
_TABLES = (
    "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'tellback'::regnamespace"
    " AND relname <> 'tellback_migrations' ORDER BY 1"
)
_OTHERS = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)
_RESTART = (
    "SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false) FROM pg_sequences"
    " WHERE last_value IS NOT NULL"
)

Connection = psycopg.Connection[tuple[Any, ...]]


class PooledDatabase:
    """A database with empty tables, and a connection that empties them again."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.name = name
        self.url = server.url(name)
        self.uses = 0
        self._connection: Connection = psycopg.connect(self.url, autocommit=True)
        self._tables = [row[0] for row in self._connection.execute(_TABLES)]
        self._shape = self._read_shape()

    def reset(self) -> bool:
        """Delete all rows; return whether the database can be reused."""
        try:
            return not self._is_in_use() and self._read_shape() == self._shape and self._delete_rows()
        except psycopg.Error:  # a test may have damaged the database
            return False

    def close(self) -> None:
        self._connection.close()

    def _read_shape(self) -> tuple[Any, ...] | None:
        return self._connection.execute(_SHAPE).fetchone()

    def _is_in_use(self) -> bool:
        deadline = time.monotonic() + LEAVING_SECONDS
        while self._connection.execute(_OTHERS).fetchone() != (0,):
            if time.monotonic() > deadline:
                return True
            time.sleep(0.005)
        return False

    def _delete_rows(self) -> bool:
        nonempty_query = " UNION ALL ".join(
            f"SELECT '{name}', (SELECT count(*) FROM (SELECT FROM {name} LIMIT {MANY_ROWS}) rows)"
            for name in self._tables
        )
        with self._connection.transaction():
            # This role skips triggers and foreign keys: all rows can be deleted.
            self._connection.execute("SET LOCAL session_replication_role = replica")
            for name, rows in self._connection.execute(nonempty_query).fetchall():
                if rows >= MANY_ROWS:
                    return False
                if rows:
                    self._connection.execute(f"DELETE FROM {name}")
            self._connection.execute(_RESTART)
        return True


class DatabasePool:
    """Lends ready databases of one server, each to one test at a time."""

    def __init__(self, server: PostgresServer, admin: Connection) -> None:
        self._server = server
        self._admin = admin
        self._numbers = itertools.count(1)
        self._free: list[PooledDatabase] = []
        self._admin.execute(f"CREATE DATABASE {TEMPLATE}")
        with ThreadPoolExecutor(1) as thread:  # this thread may run an event loop
            thread.submit(asyncio.run, _create_tables(server.url(TEMPLATE))).result()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """Return the URL of a database with empty tables."""
        database = self._free.pop() if self._free else self._create()
        database.uses += 1
        yield database.url
        if database.uses < MAX_USES and database.reset():
            self._free.append(database)
        else:
            self._drop(database)

    def close(self) -> None:
        for database in self._free:
            database.close()

    def _create(self) -> PooledDatabase:
        name = f"ready_{next(self._numbers)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        return PooledDatabase(self._server, name)

    def _drop(self, database: PooledDatabase) -> None:
        database.close()
        # FORCE: a test that failed may have left connections behind.
        self._admin.execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")


async def _create_tables(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    await store.open()
    await prepare_schema(store.queue_settings())
    await store.close()
