"""A look at a store from outside: nothing is made, and nothing migrated."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tellback.errors import ConfigurationError, StoreCorruptError, StoreUnavailableError
from tellback.stores import Store, open_store
from tellback.stores.catalogue import migrations

SQLITE_HEADER = b"SQLite format 3\x00"
COUNTED_TABLES = ("conversations", "messages", "atoms", "entities", "jobs")
MAX_CHECKED_BYTES = 500_000_000
"""A file of more bytes is not read from end to end only to look at it."""

MAX_TABLES_NAMED = 3
"""How many tables of another program are named."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store is: `version` is that of its tables, 0 where there are none, and `needed` this release's."""

    kind: str
    place: str
    exists: bool
    version: int = 0
    needed: int = 0
    size: int | None = None
    counts: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def is_behind(self) -> bool:
        """Whether it would be migrated when it is opened."""
        return self.exists and self.version < self.needed

    @property
    def is_ahead(self) -> bool:
        """Whether a later release has written it."""
        return self.version > self.needed


def store_path(store: Store) -> Path | None:
    """The file of a store, or None if it is in none."""
    scheme, _, place = store.url.partition(":///")
    return Path(place) if scheme == "sqlite" and place != ":memory:" else None


def validate_store_file(url: str, *, may_create: bool) -> None:
    """Raise if a file is not ours to open, or is not there and should be.

    Opening a file that is not there makes it, and tables are put into one of another program: neither is what
    somebody wants who has mistyped a name.
    """
    path = store_path(open_store(url))
    if path is None:
        return
    if not path.exists():
        if not may_create:
            raise StoreUnavailableError(
                f"There is no store at {path}: name another with --url or TELLBACK_URL, or begin one with"
                " `tellback chat`."
            )
        return
    _validate_file(path)


def _validate_file(path: Path) -> None:
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: name a file in it, such as --url {path / 'tellback.db'}.")
    try:
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER))
    except OSError as error:
        raise StoreUnavailableError(
            f"{path} cannot be read: {error.strerror}. Check the rights of the file and its folder."
        ) from error
    if header and header != SQLITE_HEADER:
        raise StoreCorruptError(
            f"{path} is no store of Tellback's, nor any SQLite file: name another with --url, or restore it from a"
            " backup if it was one."
        )
    if not header:
        return
    tables = _list_tables(path)
    if tables and "tellback_migrations" not in tables:
        raise ConfigurationError(
            f"{path} belongs to another program (it has {_format_tables(tables)}): name a file of Tellback's own with --url."
        )


def _format_tables(tables: list[str]) -> str:
    named = ", ".join(repr(each) for each in tables[:MAX_TABLES_NAMED])
    return (
        f"the tables {named}…"
        if len(tables) > MAX_TABLES_NAMED
        else f"the table{'s' if len(tables) > 1 else ''} {named}"
    )


def _list_tables(path: Path) -> list[str]:
    from tellback.stores.sqlite.failures import to_store_error

    try:
        with closing(_open_read_only(path)) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    except sqlite3.Error as error:
        raise to_store_error(error, str(path)) from error
    return [name for (name,) in found if not name.startswith("sqlite_")]


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)


async def inspect_store(url: str, *, is_thorough: bool = False) -> StoreInfo:
    """What is there. Raises what opening it would raise if it cannot be reached, is damaged, or is not ours.

    A `thorough` look counts what a file holds, and reads it for damage unless it is very large.
    """
    store = open_store(url)
    if store.url.startswith("sqlite"):
        return _inspect_sqlite(store, is_thorough)
    return await _inspect_postgres(store)


def _inspect_sqlite(store: Store, is_thorough: bool) -> StoreInfo:
    needed = migrations("sqlite")[-1].version
    path = store_path(store)
    if path is None:
        return StoreInfo("SQLite, in memory", ":memory:", False, needed=needed)
    if not path.exists():
        return StoreInfo("SQLite", str(path), False, needed=needed)
    _validate_file(path)
    from tellback.stores.sqlite.failures import to_store_error

    try:
        with closing(_open_read_only(path)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            version, counts = 0, {}
            if "tellback_migrations" in tables:
                version = connection.execute("SELECT COALESCE(MAX(version), 0) FROM tellback_migrations").fetchone()[0]
                if is_thorough:
                    counts = {
                        name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]
                        for name in COUNTED_TABLES
                        if name in tables
                    }
                    _validate_integrity(connection, path)
    except sqlite3.Error as error:
        raise to_store_error(error, str(path)) from error
    return StoreInfo("SQLite", str(path), True, int(version), needed, os.path.getsize(path), counts)


def _validate_integrity(connection: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size > MAX_CHECKED_BYTES:
        return
    [(outcome,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
    if outcome != "ok":
        raise StoreCorruptError(f"{path} is damaged ({' '.join(str(outcome).split())}): restore it from a backup.")


async def _inspect_postgres(store: Any) -> StoreInfo:
    import asyncpg

    from tellback.stores.postgres.failures import DRIVER_ERRORS, to_store_error
    from tellback.stores.postgres.quoting import quote_identifier

    needed = migrations("postgres")[-1].version
    settings = store.queue_settings()
    exists_query = "SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'tellback_migrations'"
    try:
        connection = await asyncpg.connect(settings.dsn, timeout=10)
        try:
            if not await connection.fetchval(exists_query, settings.schema):
                return StoreInfo("PostgreSQL", settings.place, False, needed=needed)
            await connection.execute(f"SET ROLE {quote_identifier(settings.role)}")
            version_query = (
                f"SELECT COALESCE(MAX(version), 0) FROM {quote_identifier(settings.schema)}.tellback_migrations"
            )
            version = int(await connection.fetchval(version_query))
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise to_store_error(error, settings.place) from error
    return StoreInfo("PostgreSQL", settings.place, True, version, needed)
