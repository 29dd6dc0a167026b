"""Remove the bytes of deleted rows from the file: VACUUM, then empty the write-ahead log.

SQLite leaves parts of rows behind in pages that it has rearranged, also with `secure_delete`. The steps left to do are
stored as a mark in the database, so the next writer finishes them after a crash."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tellback.stores.operations.user_data import WIPE_MARK
from tellback.stores.sqlite.connection import TEMP_STORE

NEEDS_VACUUM, NEEDS_CHECKPOINT = 1, 2
"""What is left of dividing the mark by three; see `erasing.after_deleting`."""

CHECKPOINT_WAIT_MS = 200
"""How long one attempt to empty the log waits for readers: meanwhile nobody can write."""


def wipe_deleted_rows(connection: sqlite3.Connection) -> bool:
    """Do what is to be done, outside of any transaction; False if somebody reads what is still in the log."""
    mark = _read_mark(connection)
    if mark % 3 == NEEDS_VACUUM:
        _vacuum(connection)
        mark = _advance_mark(connection, mark)
    if mark % 3 == NEEDS_CHECKPOINT:
        if not _truncate_wal(connection):
            return False
        _advance_mark(connection, mark)
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


def _read_mark(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT value FROM marks WHERE name = ?", (WIPE_MARK,)).fetchone()
    return int(found[0]) if found else 0


def _advance_mark(connection: sqlite3.Connection, mark: int) -> int:
    """The next step is due, unless more was deleted meanwhile: whoever did that begins anew."""
    connection.execute("UPDATE marks SET value = value + 1 WHERE name = ? AND value = ?", (WIPE_MARK, mark))
    return mark + 1


@contextmanager
def _busy_timeout(connection: sqlite3.Connection, milliseconds: int) -> Iterator[None]:
    [previous] = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute(f"PRAGMA busy_timeout = {milliseconds}").fetchall()
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {previous}").fetchall()
