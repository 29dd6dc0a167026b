"""The schema of a SQLite file, and wiping deleted data from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tellback.errors import SchemaVersionError
from tellback.stores.catalogue import baseline_tables, foreign_tables_error, migrations, newer_schema_error
from tellback.stores.operations.user_data import WIPE_STEP
from tellback.types.ids import now_micros

TEMP_STORE = "MEMORY"
"""Where SQLite stores temporary data."""

NEEDS_VACUUM, NEEDS_CHECKPOINT = 1, 2
"""The remainder of the step divided by three; see `operations.user_data.next_wipe_step`."""

CHECKPOINT_WAIT_MS = 200
"""How long one attempt to empty the log waits for readers. No one can write during it."""


def migrate(connection: sqlite3.Connection, path: str, *, read_only: bool) -> None:
    """Migrate the schema to this release's version, one process at a time."""
    steps = migrations("sqlite")
    present = schema_version(connection)
    if present == steps[-1].version:
        return
    if present > steps[-1].version:
        raise newer_schema_error(path, present, steps[-1].version)
    if read_only:
        raise SchemaVersionError(
            f"{path} has schema version {present}, this release needs {steps[-1].version}:"
            " open it once without mode=ro to migrate it."
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS tellback_migrations"
            " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
        )
        present = schema_version(connection)  # another process may have migrated it meanwhile
        if present > steps[-1].version:
            raise newer_schema_error(path, present, steps[-1].version)
        for step in steps:
            if step.version > present:
                for statement in _split_statements(step.sql):
                    connection.execute(statement)
                values = (step.version, step.name, now_micros())
                connection.execute(
                    "INSERT INTO tellback_migrations (version, name, applied_at) VALUES (?, ?, ?)", values
                )
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the version of the tables, 0 if there are no tables."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tellback_migrations'").fetchall():
        return 0
    return int(connection.execute("SELECT COALESCE(MAX(version), 0) FROM tellback_migrations").fetchone()[0])


def check_no_foreign_tables(connection: sqlite3.Connection, path: str) -> None:
    """Raise `SchemaVersionError` if the file has tables of another program with our names."""
    present = {name.lower() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    foreign = present & baseline_tables("sqlite")
    if foreign and "tellback_migrations" not in present:
        raise foreign_tables_error(path, foreign)


def _split_statements(script: str) -> list[str]:
    """Split a script into statements. `executescript` would commit the open transaction."""
    complete, current = [], ""
    for line in script.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            complete.append(current)
            current = ""
    if current.strip():
        complete.append(current)
    return complete


def wipe_deleted_rows(connection: sqlite3.Connection) -> bool:
    """Run the remaining wipe steps, outside of transactions. Return False if a reader still uses the log."""
    step = _read_wipe_step(connection)
    if step % 3 == NEEDS_VACUUM:
        _vacuum(connection)
        step = _advance_wipe_step(connection, step)
    if step % 3 == NEEDS_CHECKPOINT:
        if not _truncate_wal(connection):
            return False
        _advance_wipe_step(connection, step)
    return True


def try_wipe_deleted_rows(connection: sqlite3.Connection) -> bool:
    """Like `wipe_deleted_rows`, without waiting long for other writers."""
    with _busy_timeout(connection, CHECKPOINT_WAIT_MS):
        return wipe_deleted_rows(connection)


def _vacuum(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA temp_store = FILE")  # VACUUM copies the whole file
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute(f"PRAGMA temp_store = {TEMP_STORE}")


def _truncate_wal(connection: sqlite3.Connection) -> bool:
    with _busy_timeout(connection, CHECKPOINT_WAIT_MS):
        [busy, _, _] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _read_wipe_step(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT value FROM platform_state WHERE name = ?", (WIPE_STEP,)).fetchone()
    return int(found[0]) if found else 0


def _advance_wipe_step(connection: sqlite3.Connection, step: int) -> int:
    """Mark the step as done, unless rows were deleted meanwhile: that deletion starts its own steps."""
    connection.execute("UPDATE platform_state SET value = value + 1 WHERE name = ? AND value = ?", (WIPE_STEP, step))
    return step + 1


@contextmanager
def _busy_timeout(connection: sqlite3.Connection, milliseconds: int) -> Iterator[None]:
    [previous] = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {previous}").fetchall()
