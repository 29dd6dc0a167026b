"""Older and newer releases for tests: the baseline, and two more migrations that only tests have."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tellback.stores import catalogue

FIRST_VERSION, LAST_VERSION = 1, 3

ADD_MOOD = """
ALTER TABLE conversations ADD COLUMN mood TEXT;
UPDATE conversations SET mood = 'calm; ' || namespace;
"""
"""The second migration: a column, filled from stored data."""

ADD_UPGRADES = """
CREATE TABLE upgrades (id {integer} NOT NULL PRIMARY KEY, conversations {integer} NOT NULL);
INSERT INTO upgrades SELECT COUNT(*) + 1, (SELECT COUNT(*) FROM conversations WHERE mood IS NOT NULL) FROM upgrades;
"""
"""The third migration: a table with a row for each run of the migration."""

BROKEN = "CREATE TABLE half_done (id {integer} NOT NULL);\nINSERT INTO no_such_table VALUES (1);\n"

# Row-level security also applies to the owner of the tables, so a migration must request access to all users.
ALL_USERS = "SET LOCAL tellback.platform = 'on';\n"


def write_migrations(folder: Path, version: int = LAST_VERSION, *, last: str | None = None) -> Path:
    """Write the migrations of a release up to `version`; `last` replaces the script of the newest one."""
    folder.mkdir()
    for path in catalogue.MIGRATIONS_FOLDER.glob("0001_*.sql"):
        shutil.copy(path, folder)
    later_migrations = [(2, "mood", ADD_MOOD), (3, "upgrades", ADD_UPGRADES)][: version - 1]
    for number, name, sql in later_migrations:
        script = last if last is not None and number == version else sql
        (folder / f"{number:04}_{name}.sqlite.sql").write_text(script.replace("{integer}", "INTEGER"))
        (folder / f"{number:04}_{name}.postgres.sql").write_text(ALL_USERS + script.replace("{integer}", "BIGINT"))
    return folder


class Releases:
    """Makes this process behave like different releases."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._baseline = catalogue.MIGRATIONS_FOLDER
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._count = 0

    def use_version(self, version: int, *, last: str | None = None) -> Path:
        """Behave like a release with migrations up to this version; return its folder of migrations."""
        self._monkeypatch.setattr(catalogue, "MIGRATIONS_FOLDER", self._baseline)
        self._count += 1
        folder = write_migrations(self._folder / f"release_{self._count}", version, last=last)
        self._monkeypatch.setattr(catalogue, "MIGRATIONS_FOLDER", folder)
        return folder


async def fetch_rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """Read rows directly from the tables, without the store."""
    if not url.startswith("postgresql"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            return connection.execute(query).fetchall()
    server = await asyncpg.connect(url, server_settings={"search_path": "tellback"})
    try:
        return [tuple(row) for row in await server.fetch(query)]
    finally:
        await server.close()


async def run_script(url: str, script: str) -> None:
    """Run SQL directly on the database, in the schema of the tables."""
    if not url.startswith("postgresql"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script)
        return
    server = await asyncpg.connect(url, server_settings={"search_path": "tellback"})
    try:
        await server.execute("CREATE SCHEMA IF NOT EXISTS tellback")
        await server.execute(script)
    finally:
        await server.close()
