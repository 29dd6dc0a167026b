"""SQLAlchemy's errors, and those of the drivers behind it, in our words."""

from __future__ import annotations

import sqlite3

from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tellback.errors import (
    ConfigurationError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)

DATABASE_ERRORS = (SQLAlchemyError, OSError)
"""What comes out of SQLAlchemy when it is not our mistake. A `TimeoutError` is an `OSError`."""

ErrorCode = str | int

# Codes are SQLSTATEs where the driver gives them, MySQL's numbers, and SQLite's primary ones with a minus.
_CONNECTION_LOST: frozenset[ErrorCode] = frozenset(
    {"57P01", "57P02", "57P03", "57P05", "25P03", 2002, 2003, 2006, 2013, 2055}
)
_RETRYABLE: frozenset[ErrorCode] = frozenset(
    {"40001", "40P01", 1205, 1213, -sqlite3.SQLITE_BUSY, -sqlite3.SQLITE_LOCKED}
)
_BUSY: frozenset[ErrorCode] = _RETRYABLE | {"53300", "53200", "55P03", "57014", 1040, 3024}
_FULL: frozenset[ErrorCode] = frozenset({"53100", 1021, 1114, -sqlite3.SQLITE_FULL})
_READ_ONLY: frozenset[ErrorCode] = frozenset(
    {"25006", 1290, 1792, 1836, -sqlite3.SQLITE_READONLY, -sqlite3.SQLITE_PERM}
)
_REFUSED: frozenset[ErrorCode] = frozenset({"3D000", "42501", 1044, 1045, 1049, 1142})
_CORRUPT: frozenset[ErrorCode] = frozenset({-sqlite3.SQLITE_CORRUPT, -sqlite3.SQLITE_NOTADB})
_CANNOT_OPEN: frozenset[ErrorCode] = frozenset({-sqlite3.SQLITE_CANTOPEN, -sqlite3.SQLITE_IOERR, -sqlite3.SQLITE_AUTH})


class ConnectError(Exception):
    """No connection could be had; the driver's own error is the cause."""


def describe_url(url: URL) -> str:
    """Where a database is, without who and with which password.

    >>> from sqlalchemy import make_url
    >>> describe_url(make_url("postgresql+asyncpg://maya:secret@db:5432/prod?password=secret"))
    'postgresql://db:5432/prod'
    """
    if url.host is None:
        return f"{url.get_backend_name()}:{url.database or ':memory:'}"
    port = "" if url.port is None else f":{url.port}"
    return f"{url.get_backend_name()}://{url.host}{port}/{url.database or ''}"


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that another one may work."""
    if isinstance(error, PoolTimeoutError | TimeoutError):
        return False
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    code = _error_code(error)
    return (
        code in _CONNECTION_LOST
        or (isinstance(code, str) and code.startswith("08"))
        or isinstance(_driver_error(error), OSError)
    )


def is_transient(error: BaseException) -> bool:
    """Whether the transaction was undone for others' sake, or for tables that changed, and may be run again."""
    return (
        _error_code(error) in _RETRYABLE or type(getattr(error, "orig", None)).__name__ == "InvalidCachedStatementError"
    )


def translate_error(error: BaseException, url: URL, *, in_doubt: bool = False) -> TellbackError:
    """What went wrong, and what to do about it."""
    place, message = describe_url(url), _error_message(error, url)
    doubt = " The change may have been stored: look before you do it again." if in_doubt else ""
    cause = error.__cause__ if isinstance(error, ConnectError) and error.__cause__ is not None else error
    if isinstance(cause, PoolTimeoutError):
        return StoreBusyError(f"No connection to {place} became free in time: make the engine's pool larger.")
    if isinstance(cause, TimeoutError):
        return StoreUnavailableError(f"{place} did not answer in time.{doubt}", in_doubt=in_doubt)
    if isinstance(cause, ArgumentError | TypeError | ValueError):
        return ConfigurationError(f"The engine of {place} cannot connect: {message}. Check its URL and its arguments.")
    code = _error_code(cause)
    if is_connection_lost(cause):
        return StoreUnavailableError(f"{place} cannot be reached: {message}.{doubt}", in_doubt=in_doubt)
    if code in _REFUSED or (isinstance(code, str) and code.startswith("28")):
        return StoreUnavailableError(f"{place} refused: {message}. Check the database's name, its user and its rights.")
    if isinstance(cause, IntegrityError):
        return StoreError(f"{place} refused it for a constraint of its tables: {message}. Nothing was stored.")
    return _translate_code(code, place, message) or (
        StoreUnavailableError(f"{place} cannot be reached: {message}.")
        if isinstance(error, ConnectError)
        else StoreError(f"{place}: {message}")
    )


def _translate_code(code: ErrorCode | None, place: str, message: str) -> StoreError | None:
    if code in _BUSY:
        return StoreBusyError(f"{place} is too busy: {message}. Try again.")
    if code in _FULL:
        return StoreFullError(f"There is no room left for {place}: {message}. Free some space and try again.")
    if code in _READ_ONLY:
        return StoreReadOnlyError(
            f"{place} takes no changes: {message}. Is it a replica, or a file without the rights?"
        )
    if code in _CORRUPT:
        return StoreCorruptError(f"{place} is not a sound SQLite database: {message}. Restore it from a backup.")
    if code in _CANNOT_OPEN:
        return StoreUnavailableError(f"{place} cannot be used: {message}. Check that its folder exists.")
    return None


def _driver_error(error: BaseException) -> BaseException:
    """The driver's own error, behind SQLAlchemy's and behind its adaption to asyncio."""
    orig: BaseException = getattr(error, "orig", None) or error
    adapted = type(orig).__module__.startswith("sqlalchemy.")
    return orig.__cause__ if adapted and orig.__cause__ is not None else orig


def _error_code(error: BaseException) -> ErrorCode | None:
    driver = _driver_error(error)
    sqlite_code = getattr(driver, "sqlite_errorcode", None)
    if sqlite_code is not None:
        return -(int(sqlite_code) & 0xFF)  # extended codes say more in the higher bits
    state = getattr(driver, "sqlstate", None)
    if isinstance(state, str):
        return state
    first = driver.args[0] if driver.args else None
    return first if isinstance(first, int) and isinstance(error, DBAPIError) else None


def _error_message(error: BaseException, url: URL) -> str:
    cause = error.__cause__ if isinstance(error, ConnectError) and error.__cause__ is not None else error
    driver = _driver_error(cause)
    message = str(driver).strip().rstrip(".") or type(driver).__name__
    for secret in (url.password, url.query.get("password")):
        if secret:
            message = message.replace(str(secret), "***")
    return message
