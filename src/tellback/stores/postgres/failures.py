"""PostgreSQL's errors in our words."""

from __future__ import annotations

import asyncpg

from tellback.errors import (
    InvalidArgumentError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)

_CONNECTION_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Of a connection that ended. The driver calls it an internal error when the end comes between two of its steps."""

DRIVER_ERRORS = (asyncpg.PostgresError, *_CONNECTION_ERRORS, TimeoutError)
"""What the driver raises when it is not our mistake."""

_RETRYABLE_STATES = ("40001", "40P01")  # serialization failure, deadlock


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that another one may work."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = error.sqlstate or ""
        return sqlstate.startswith("08") or sqlstate in ("57P01", "57P02", "57P03", "57P05", "25P03")
    return isinstance(error, _CONNECTION_ERRORS) and not isinstance(error, TimeoutError)


def is_retryable(error: BaseException) -> bool:
    """Whether the transaction was undone for others' sake, and may be run again."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _RETRYABLE_STATES


def to_store_error(error: BaseException, display_url: str, *, in_doubt: bool = False) -> TellbackError:
    """What went wrong, and what to do about it."""
    doubt_note = " The change may have been stored: retry with the same idempotency key." if in_doubt else ""
    if isinstance(error, TimeoutError):
        return StoreUnavailableError(f"{display_url} did not answer in time.{doubt_note}", in_doubt=in_doubt)
    if is_connection_lost(error):
        return StoreUnavailableError(f"{display_url} cannot be reached: {error}.{doubt_note}", in_doubt=in_doubt)
    sqlstate = getattr(error, "sqlstate", None) or ""
    if sqlstate == "54000" and "index row" in str(error):  # it has less than 2,704 bytes
        return InvalidArgumentError("the names in it are too long together for PostgreSQL to find it by: shorten them.")
    if sqlstate == "53100":
        return StoreFullError(f"The disk of {display_url} is full: {error}. Free some space and try again.")
    if sqlstate == "25006":
        return StoreReadOnlyError(f"{display_url} takes no changes: {error}. Is this a replica?")
    if sqlstate in ("53300", "53200", "55P03", "57014", *_RETRYABLE_STATES):
        return StoreBusyError(f"{display_url} is too busy: {error}. Try again.")
    if sqlstate.startswith("28") or sqlstate in ("3D000", "42501"):
        return StoreUnavailableError(
            f"{display_url} refused: {error}. Check the database's name, its user and its rights."
        )
    return StoreError(f"{display_url}: {error}")
