"""SQLite's errors in our words."""

from __future__ import annotations

import sqlite3

from tellback.errors import (
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
)

_PRIMARY_CODE_MASK = 0xFF  # extended codes say more in the higher bits


def to_store_error(error: sqlite3.Error, path: str) -> StoreError:
    """What went wrong, and what to do about it."""
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # the index of the log could not grow
        code = sqlite3.SQLITE_FULL
    match None if code is None else code & _PRIMARY_CODE_MASK:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreBusyError(
                f"{path} is locked by another connection: {error}. Try again, end what holds it,"
                " or wait longer with sqlite:///...?busy_timeout=SECONDS."
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
