"""SQLite connections: pragmas, migrations, errors, and wiping deleted data from the file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tellback.errors import (
    SchemaVersionError,
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from tellback.stores.catalogue import (
    Migration,
    Statement,
    baseline_tables,
    foreign_tables_error,
    migrations,
    newer_schema_error,
)
from tellback.stores.engine import EVENT_STATEMENT, Operation, T
from tellback.stores.operations.user_data import WIPE_STEP
from tellback.types.ids import now_micros

_PRIMARY_CODE_MASK = 0xFF  # extended codes say more in the higher bits


TEMP_STORE = "MEMORY"
"""Where SQLite keeps what it needs for a moment."""

NEEDS_VACUUM, NEEDS_CHECKPOINT = 1, 2
"""What is left of dividing the step by three; see `operations.user_data.next_wipe_step`."""

CHECKPOINT_WAIT_MS = 200
"""How long one attempt to empty the log waits for readers: meanwhile nobody can write."""


def to_store_error(error: sqlite3.Error, path: str) -> StoreError:
    """What went wrong, and what to do about it."""
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the index of the log could not grow
        code = sqlite3.SQLITE_FULL
    match None if code is None else code & _PRIMARY_CODE_MASK:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusyError(
                f"{path} is locked by another connection: {error}. Try again, end what holds it, or wait longer"
                " with a greater busy_timeout (of a store: sqlite:///...?busy_timeout=SECONDS)."
            )
        case sqlite3.SQLITE_FULL:
            return StoreFullError(f"There is no room left for {path}: {error}. Free some space and try again.")
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreReadOnlyError(
                f"{path} cannot be written: {error}. Check the rights of the file and its folder."
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_AUTH:
            return StoreUnavailableError(
                f"{path} cannot be used: {error}. Check that its folder exists and is reachable."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return StoreCorruptError(f"{path} is not a sound SQLite database: {error}. Restore it from a backup.")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreClosedError(f"{path} has been closed.")
    return StoreError(f"{path}: {error}")


@dataclass(frozen=True, slots=True)
class SqliteOptions:
    """How to open the file.

    `synchronous="normal"` survives the death of the process at any moment; "full" also a power cut, at the price of one
    more wait for the disk per group of commits. `busy_timeout` is how many seconds to wait for another process's lock.
    """

    path: str
    synchronous: str = "normal"
    busy_timeout: float = 10.0
    read_only: bool = False
    readers: int = 4

    @property
    def in_memory(self) -> bool:
        """Whether it lives only as long as its connection."""
        return self.path == ":memory:"


def connect(options: SqliteOptions) -> sqlite3.Connection:
    """A connection whose transactions are ours to begin and end."""
    target = options.path
    if not options.in_memory:
        from pathlib import Path

        mode = "ro" if options.read_only else "rwc"
        target = f"{Path(options.path).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(
        target,
        timeout=options.busy_timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
        uri=True,
    )
    connection.row_factory = sqlite3.Row
    try:
        if not options.read_only:
            _use_wal(connection, options)
        connection.execute(f"PRAGMA synchronous = {options.synchronous}").fetchall()
        connection.execute("PRAGMA foreign_keys = ON").fetchall()
        connection.execute(f"PRAGMA temp_store = {TEMP_STORE}").fetchall()
        connection.execute("PRAGMA cache_size = -16000").fetchall()
    except BaseException:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection, options: SqliteOptions) -> None:
    """Switch to WAL, unless the file is another program's, which stays as it is.

    The first connection to a new file does the switch, and SQLite does not wait for others who do the same.
    """
    deadline = time.monotonic() + options.busy_timeout
    while True:
        try:
            _check_no_foreign_tables(connection, options)
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY_CODE_MASK != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def run_operation(
    cursor: sqlite3.Cursor, statements: Mapping[str, Statement], values: dict[str, Any], operation: Operation[T]
) -> tuple[T, bool]:
    """Run an operation to its end; gives its result, and whether it wrote events."""
    wrote_events = False
    try:
        name, parameters = next(operation)
        while True:
            wrote_events = wrote_events or name == EVENT_STATEMENT
            statement = statements[name]
            bound = {**values, **parameters}
            cursor.execute(statement.sql, [bound[key] for key in statement.parameters])
            name, parameters = operation.send(cursor.fetchall())
    except StopIteration as stop:
        result: T = stop.value
        return result, wrote_events


def migrate(connection: sqlite3.Connection, options: SqliteOptions) -> None:
    """Bring the schema to this release's version, one process at a time."""
    steps = migrations("sqlite")
    present = schema_version(connection)
    if present == steps[-1].version:
        return
    if present > steps[-1].version:
        raise newer_schema_error(options.path, present, steps[-1].version)
    if options.read_only:
        raise SchemaVersionError(
            f"{options.path} has schema version {present}, this release needs {steps[-1].version}:"
            " open it once without mode=ro to migrate it."
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS tellback_migrations"
            " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
        )
        present = schema_version(connection)  # another process may have been faster
        if present > steps[-1].version:
            raise newer_schema_error(options.path, present, steps[-1].version)
        for step in steps:
            if step.version > present:
                _apply_migration(connection, step)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the version of the tables, 0 where there are none."""
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tellback_migrations'").fetchall()
    if not tables:
        return 0
    return int(connection.execute("SELECT COALESCE(MAX(version), 0) FROM tellback_migrations").fetchone()[0])


def _check_no_foreign_tables(connection: sqlite3.Connection, options: SqliteOptions) -> None:
    present = {name.lower() for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    foreign = present & baseline_tables("sqlite")
    if foreign and "tellback_migrations" not in present:
        raise foreign_tables_error(options.path, foreign)


def _apply_migration(connection: sqlite3.Connection, step: Migration) -> None:
    for statement in _split_statements(step.sql):
        connection.execute(statement)
    values = (step.version, step.name, now_micros())
    connection.execute("INSERT INTO tellback_migrations (version, name, applied_at) VALUES (?, ?, ?)", values)


def _split_statements(script: str) -> list[str]:
    """A script's statements. `executescript` would commit the transaction it runs in."""
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
    """Do what is to be done, outside of any transaction; False if somebody reads what is still in the log."""
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
    """The same, if nobody else is writing."""
    with _busy_timeout(connection, CHECKPOINT_WAIT_MS):
        return wipe_deleted_rows(connection)


def _vacuum(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA temp_store = FILE")  # the copy is as large as the file
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
    """The next step is due, unless more was deleted meanwhile: whoever did that begins anew."""
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
