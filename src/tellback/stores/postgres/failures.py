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

_BROKEN = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Of a connection that ended. The driver calls it an internal error when the end comes between two of its steps."""

FAILURES = (asyncpg.PostgresError, *_BROKEN, TimeoutError)
"""What the driver raises when it is not our mistake."""

_TRY_AGAIN = ("40001", "40P01")  # serialization failure, deadlock


def is_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that another one may work."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith("08") or state in ("57P01", "57P02", "57P03", "57P05", "25P03")
    return isinstance(error, _BROKEN) and not isinstance(error, TimeoutError)


def may_try_again(error: BaseException) -> bool:
    """Whether the transaction was undone for others' sake, and may be run again."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _TRY_AGAIN


def store_error(error: BaseException, place: str, *, in_doubt: bool = False) -> TellbackError:
    """What went wrong, and what to do about it."""
    doubt = " The change may have been stored: retry with the same idempotency key." if in_doubt else ""
    if isinstance(error, TimeoutError):
        return StoreUnavailableError(f"{place} did not answer in time.{doubt}", in_doubt=in_doubt)
    if is_lost(error):
        return StoreUnavailableError(f"{place} cannot be reached: {error}.{doubt}", in_doubt=in_doubt)
    state = getattr(error, "sqlstate", None) or ""
    if state == "54000" and "index row" in str(error):  # it has less than 2,704 bytes
        return InvalidArgumentError("the names in it are too long together for PostgreSQL to find it by: shorten them.")
    if state == "53100":
        return StoreFullError(f"The disk of {place} is full: {error}. Free some space and try again.")
    if state == "25006":
        return StoreReadOnlyError(f"{place} takes no changes: {error}. Is this a replica?")
    if state in ("53300", "53200", "55P03", "57014", *_TRY_AGAIN):
        return StoreBusyError(f"{place} is too busy: {error}. Try again.")
    if state.startswith("28") or state in ("3D000", "42501"):
        return StoreUnavailableError(f"{place} refused: {error}. Check the database's name, its user and its rights.")
    return StoreError(f"{place}: {error}")
