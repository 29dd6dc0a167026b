"""The engine of the adapter: transactions with safe retries, and the translation of database errors."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import URL, StaticPool, exc, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

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

T = TypeVar("T")

DATABASE_ERRORS = (exc.SQLAlchemyError, OSError)
"""Errors of SQLAlchemy that are not programming errors. A `TimeoutError` is an `OSError`."""

ErrorCode = str | int

# Codes are SQLSTATEs if the driver has them, MySQL's numbers, or SQLite's primary codes as negative numbers.
_CONNECTION_LOST: frozenset[ErrorCode] = frozenset(
    {"57P01", "57P02", "57P03", "57P05", "25P03", 2002, 2003, 2006, 2013, 2055}
)
_RETRYABLE: frozenset[ErrorCode] = frozenset(
    {"40001", "40P01", 1205, 1213, -sqlite3.SQLITE_BUSY, -sqlite3.SQLITE_LOCKED}
)
_REFUSED: frozenset[ErrorCode] = frozenset({"3D000", "42501", 1044, 1045, 1049, 1142})
_ERRORS_BY_CODE: tuple[tuple[frozenset[ErrorCode], type[StoreError], str], ...] = (
    (
        _RETRYABLE | {"53300", "53200", "55P03", "57014", 1040, 3024},
        StoreBusyError,
        "{place} is too busy: {message}. Try again.",
    ),
    (
        frozenset({"53100", 1021, 1114, -sqlite3.SQLITE_FULL}),
        StoreFullError,
        "The disk of {place} is full: {message}. Free some space and try again.",
    ),
    (
        frozenset({"25006", 1290, 1792, 1836, -sqlite3.SQLITE_READONLY, -sqlite3.SQLITE_PERM}),
        StoreReadOnlyError,
        "{place} is read-only: {message}. Connect to the primary server, or check the file's permissions.",
    ),
    (
        frozenset({-sqlite3.SQLITE_CORRUPT, -sqlite3.SQLITE_NOTADB}),
        StoreCorruptError,
        "{place} is not a valid SQLite database: {message}. Restore it from a backup.",
    ),
    (
        frozenset({-sqlite3.SQLITE_CANTOPEN, -sqlite3.SQLITE_IOERR, -sqlite3.SQLITE_AUTH}),
        StoreUnavailableError,
        "{place} cannot be opened: {message}. Check that its folder exists.",
    ),
)

Work: TypeAlias = Callable[[AsyncConnection, bool], Awaitable[T]]
"""Code to run on a connection. Its second argument is True when it is repeated because a row already existed."""

CONNECT_SECONDS = 5.0
POOL_SECONDS = 20.0
OPERATION_SECONDS = 30.0
BUSY_SECONDS = 10.0
"""How long to retry after conflicts and locks."""

_CONNECT_ARGUMENTS: dict[str, dict[str, Any]] = {
    "asyncpg": {"timeout": CONNECT_SECONDS},
    "psycopg": {"connect_timeout": int(CONNECT_SECONDS)},
    "psycopg_async": {"connect_timeout": int(CONNECT_SECONDS)},
    "aiosqlite": {"timeout": CONNECT_SECONDS},
    "aiomysql": {"connect_timeout": int(CONNECT_SECONDS)},
    "asyncmy": {"connect_timeout": int(CONNECT_SECONDS)},
}
_DRIVERS = {"postgresql": "asyncpg", "sqlite": "aiosqlite", "mysql": "asyncmy", "mariadb": "asyncmy"}


def describe_url(url: URL) -> str:
    """Return a database's address without user and password.

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
    if isinstance(error, exc.TimeoutError | TimeoutError):
        return False
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return True
    code = _error_code(error)
    return (
        code in _CONNECTION_LOST
        or (isinstance(code, str) and code.startswith("08"))
        or isinstance(_driver_error(error), OSError)
    )


def is_transient(error: BaseException) -> bool:
    """Whether the transaction was rolled back because of a conflict or changed tables, and may be run again."""
    return (
        _error_code(error) in _RETRYABLE or type(getattr(error, "orig", None)).__name__ == "InvalidCachedStatementError"
    )


def translate_error(error: BaseException, url: URL, *, connected: bool, in_doubt: bool = False) -> TellbackError:
    """Convert an error to a store error that says what to do."""
    place, message, code = describe_url(url), _error_message(error, url), _error_code(error)
    doubt = " The change may have been stored: check before you retry." if in_doubt else ""
    if isinstance(error, exc.TimeoutError):
        return StoreBusyError(f"No connection to {place} became free in time: increase the engine's pool size.")
    if isinstance(error, TimeoutError):
        return StoreUnavailableError(f"{place} did not answer in time.{doubt}", in_doubt=in_doubt)
    if isinstance(error, exc.ArgumentError | TypeError | ValueError):
        return ConfigurationError(f"The engine of {place} cannot connect: {message}. Check its URL and its arguments.")
    if is_connection_lost(error):
        return StoreUnavailableError(f"{place} cannot be reached: {message}.{doubt}", in_doubt=in_doubt)
    if code in _REFUSED or (isinstance(code, str) and code.startswith("28")):
        return StoreUnavailableError(
            f"{place} rejected the login: {message}. Check the database's name, the user and its permissions."
        )
    if isinstance(error, exc.IntegrityError):
        return StoreError(f"{place} rejected the change because of a constraint: {message}. Nothing was stored.")
    for codes, error_type, text in _ERRORS_BY_CODE:
        if code in codes:
            return error_type(text.format(place=place, message=message))
    if not connected:
        return StoreUnavailableError(f"{place} cannot be reached: {message}.")
    return StoreError(f"{place}: {message}")


def _driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error, which SQLAlchemy and its asyncio adapter wrap."""
    orig: BaseException = getattr(error, "orig", None) or error
    adapted = type(orig).__module__.startswith("sqlalchemy.")
    return orig.__cause__ if adapted and orig.__cause__ is not None else orig


def _error_code(error: BaseException) -> ErrorCode | None:
    driver = _driver_error(error)
    sqlite_code = getattr(driver, "sqlite_errorcode", None)
    if sqlite_code is not None:
        return -(int(sqlite_code) & 0xFF)  # extended codes use the higher bits
    state = getattr(driver, "sqlstate", None)
    if isinstance(state, str):
        return state
    first = driver.args[0] if driver.args else None
    return first if isinstance(first, int) and isinstance(error, exc.DBAPIError) else None


def _error_message(error: BaseException, url: URL) -> str:
    driver = _driver_error(error)
    message = str(driver).strip().rstrip(".") or type(driver).__name__
    for secret in (url.password, url.query.get("password")):
        if secret:
            message = message.replace(str(secret), "***")
    return message


@dataclass(slots=True)
class _Attempt:
    """The progress of one attempt, and the state from earlier ones."""

    is_repeat: bool = False
    reconnected: bool = False
    connected: bool = False
    is_committing: bool = False


class Database:
    """Runs transactions on its own engine or on the user's."""

    def __init__(self, engine: AsyncEngine | str) -> None:
        self.owns_engine = isinstance(engine, str)
        self.engine = _resolve_engine(engine)
        self.place = describe_url(self.engine.url)
        self.dialect = self.engine.dialect.name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer_lock = asyncio.Lock()
        self._running: set[asyncio.Future[None]] = set()

    async def open(self) -> None:
        """Bind to the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            if self._loop is not None and not self._loop.is_closed():
                raise self._wrong_loop_error()
            await self._release(close=False)
        self._loop = loop

    async def close(self) -> None:
        """Close the connections after running calls have finished, except those of the user's engine."""
        if self._loop is None:
            return
        here = self._loop is asyncio.get_running_loop()
        if here and self._running:
            await asyncio.wait(self._running, timeout=OPERATION_SECONDS)
        await self._release(close=here)

    async def _release(self, *, close: bool) -> None:
        self._loop, self._writer_lock, self._running = None, asyncio.Lock(), set()
        if self.owns_engine:
            await self.engine.dispose(close=close)

    async def run(self, work: Work[T], *, writes: bool = False, seconds: float | None = None) -> T:
        """Run work. If it `writes`, it runs in a transaction, so it is stored completely or not at all."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            raise self._wrong_loop_error()
        running, finished = self._running, loop.create_future()
        running.add(finished)
        try:
            return await self._run_with_retries(work, writes=writes, seconds=seconds or OPERATION_SECONDS)
        finally:
            running.discard(finished)
            finished.set_result(None)

    async def _run_with_retries(self, work: Work[T], *, writes: bool, seconds: float) -> T:
        retry_deadline = asyncio.get_running_loop().time() + BUSY_SECONDS
        attempt = _Attempt()
        while True:
            try:
                async with AsyncExitStack() as stack:
                    if self._needs_lock(writes):
                        await stack.enter_async_context(self._writer_lock)
                    if self.dialect == "sqlite":
                        return await self._run_uncancelled(self._run_once(work, attempt, writes=writes))
                    await stack.enter_async_context(asyncio.timeout(seconds))
                    return await self._run_once(work, attempt, writes=writes)
            except Exception as error:
                # Before a connection exists, drivers raise many error types, and SQLAlchemy does not wrap them all.
                if attempt.connected and not isinstance(error, DATABASE_ERRORS):
                    raise
                next_attempt = self._next_attempt(attempt, error, retry_deadline)
                if next_attempt is None:
                    in_doubt = attempt.is_committing and (is_connection_lost(error) or isinstance(error, TimeoutError))
                    raise translate_error(
                        error, self.engine.url, connected=attempt.connected, in_doubt=in_doubt
                    ) from error
                attempt = next_attempt
            if not attempt.reconnected:
                await asyncio.sleep(random.uniform(0.005, 0.05))

    def _next_attempt(self, attempt: _Attempt, error: BaseException, retry_deadline: float) -> _Attempt | None:
        """Return the next attempt, or None if the error must not be retried."""
        if is_transient(error):
            can_wait = asyncio.get_running_loop().time() < retry_deadline
            return _Attempt(attempt.is_repeat, attempt.reconnected) if can_wait else None
        if isinstance(error, exc.IntegrityError):
            return None if attempt.is_repeat else _Attempt(is_repeat=True, reconnected=attempt.reconnected)
        if is_connection_lost(error) and not attempt.is_committing and not attempt.reconnected:
            return _Attempt(attempt.is_repeat, reconnected=True)
        return None

    async def _run_once(self, work: Work[T], attempt: _Attempt, *, writes: bool) -> T:
        async with self.engine.connect() as connection:
            attempt.connected = True
            if not writes:
                return await work(connection, attempt.is_repeat)
            await self._begin(connection)
            result = await work(connection, attempt.is_repeat)
            attempt.is_committing = True
            await connection.commit()
            return result

    async def _run_uncancelled(self, operation: Coroutine[Any, Any, T]) -> T:
        """Wait for the end even when cancelled.

        An interrupted statement of SQLite keeps the file locked as long as any object refers to it.
        """
        task = asyncio.create_task(operation)
        cancelled = False
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                cancelled = True
        if cancelled:
            if not task.cancelled():
                task.exception()  # the caller was cancelled: mark the error as retrieved
            raise asyncio.CancelledError
        return task.result()

    def _needs_lock(self, writes: bool) -> bool:
        """Whether to take the lock: SQLite has one writer, and a shared connection runs one statement at a time."""
        return isinstance(self.engine.pool, StaticPool) or (writes and self.dialect == "sqlite")

    async def _begin(self, connection: AsyncConnection) -> None:
        await connection.begin()
        if self.dialect != "sqlite":
            return
        raw = await connection.get_raw_connection()
        # SQLite's driver begins transactions late, and not for every statement. Some engines begin them themselves.
        if not getattr(raw.driver_connection, "in_transaction", False):
            await connection.exec_driver_sql("BEGIN IMMEDIATE")

    def _wrong_loop_error(self) -> ConfigurationError:
        return ConfigurationError(
            f"The adapter of {self.place} was initialized in another event loop: use it there, or disconnect it there"
            " and initialize it in this one."
        )


def _resolve_engine(engine: AsyncEngine | str) -> AsyncEngine:
    if isinstance(engine, AsyncEngine):
        return engine
    if not isinstance(engine, str):
        raise ConfigurationError(
            f"SqlAlchemyAdapter needs an AsyncEngine or a URL such as 'postgresql+asyncpg://…', got a"
            f" {type(engine).__name__}."
        )
    try:
        url = make_url(engine)
    except (exc.ArgumentError, ValueError):  # their messages may contain the password
        raise ConfigurationError(
            "Malformed database URL: write it as 'postgresql+asyncpg://user:password@host/database' or"
            " 'sqlite+aiosqlite:///file.db', with special characters of the password as %XX."
        ) from None
    return _create_engine(url)


def _create_engine(url: URL) -> AsyncEngine:
    backend, _, driver = url.drivername.partition("+")
    arguments = _CONNECT_ARGUMENTS.get(driver, {})
    connect_args = {name: value for name, value in arguments.items() if name not in url.query}
    options: dict[str, Any] = {"pool_pre_ping": True, "hide_parameters": True, "connect_args": connect_args}
    if backend != "sqlite":
        options["pool_timeout"] = POOL_SECONDS
    try:
        return create_async_engine(url, **options)
    except exc.NoSuchModuleError as error:
        raise ConfigurationError(f"SQLAlchemy does not support {url.drivername!r}: check the URL.") from error
    except (ModuleNotFoundError, exc.InvalidRequestError) as error:
        if driver and isinstance(error, ModuleNotFoundError):
            raise ConfigurationError(f"{url.drivername} needs the package {error.name!r}: pip install it.") from error
        raise ConfigurationError(
            f"The URL needs an asyncio driver: begin it with {backend}+{_DRIVERS.get(backend, '…')}://."
        ) from error
    except (exc.ArgumentError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"Creating an engine for {describe_url(url)} failed: {type(error).__name__}."
        ) from None
