"""PostgreSQL connections: driver errors as store errors, rollback, and the listener that holds the instance's lock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from tellback.concurrency import cancel_and_wait
from tellback.errors import (
    InvalidArgumentError,
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreUnavailableError,
    TellbackError,
)

log = logging.getLogger("tellback.stores")

_CONNECTION_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""A connection ended. The driver raises an internal error if it ends between two steps of the protocol."""

DRIVER_ERRORS = (asyncpg.PostgresError, *_CONNECTION_ERRORS, TimeoutError)
"""Errors of the driver that are not programming errors."""

_RETRYABLE_STATES = ("40001", "40P01")  # serialization failure, deadlock


ROLLBACK_SECONDS = 2.0
"""How long a rollback may take."""

CHANNEL = "tellback_events"
INSTANCE_LOCK = "tellback.instance"
RECONNECT_SECONDS = 0.5


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that another connection may succeed."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = error.sqlstate or ""
        return sqlstate.startswith("08") or sqlstate in ("57P01", "57P02", "57P03", "57P05", "25P03")
    return isinstance(error, _CONNECTION_ERRORS) and not isinstance(error, TimeoutError)


def is_retryable(error: BaseException) -> bool:
    """Whether the transaction was rolled back because of a conflict or changed tables, and may be run again."""
    if isinstance(error, asyncpg.InvalidCachedStatementError):
        return True
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate in _RETRYABLE_STATES


def to_store_error(
    error: BaseException,
    display_url: str,
    *,
    in_doubt: bool = False,
    advice: str = "retry with the same idempotency key",
) -> TellbackError:
    """Convert a driver error to a store error that says what to do. `advice` is for a change that is `in_doubt`."""
    doubt_note = f" The change may have been stored: {advice}." if in_doubt else ""
    if isinstance(error, TimeoutError):
        return StoreUnavailableError(f"{display_url} did not answer in time.{doubt_note}", in_doubt=in_doubt)
    if is_connection_lost(error):
        return StoreUnavailableError(f"{display_url} cannot be reached: {error}.{doubt_note}", in_doubt=in_doubt)
    sqlstate = getattr(error, "sqlstate", None) or ""
    if sqlstate == "54000" and "index row" in str(error):  # the limit is 2,704 bytes
        return InvalidArgumentError("The names are too long together for a PostgreSQL index: shorten them.")
    if sqlstate == "53100":
        return StoreFullError(f"The disk of {display_url} is full: {error}. Free some space and try again.")
    if sqlstate == "25006":
        return StoreReadOnlyError(f"{display_url} is read-only: {error}. Connect to the primary server.")
    if sqlstate in ("53300", "53200", "55P03", "57014", *_RETRYABLE_STATES):
        return StoreBusyError(f"{display_url} is too busy: {error}. Try again.")
    if sqlstate.startswith("28") or sqlstate in ("3D000", "42501"):
        return StoreUnavailableError(
            f"{display_url} rejected the connection: {error}. Check the database's name, its user and its privileges."
        )
    return StoreError(f"{display_url}: {error}")


async def roll_back(connection: Any, statement: str = "ROLLBACK") -> None:
    """Roll back so that the connection can be reused, or terminate it."""
    try:
        async with asyncio.timeout(ROLLBACK_SECONDS):
            if not connection.is_closed():
                await connection.execute(statement)
    except asyncio.CancelledError:
        _terminate(connection)  # a connection in an unknown state must not be used again
        raise
    except Exception:  # noqa: BLE001
        _terminate(connection)  # the caller should see the original error, not this one


async def skip_reset(connection: Any) -> None:
    """Skip the pool's reset between uses: our transactions leave no session state behind."""


def _terminate(connection: Any) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):  # after a timeout the pool may have closed it already
        connection.terminate()


class ListenerConnection:
    """A connection that listens for events and holds the instance's lock. It reconnects whenever it breaks."""

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], key: int, notify: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._key = key
        self._notify = notify
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def ensure_open(self) -> bool:
        """Open the connection. Return False if that takes too long; it keeps trying in the background."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_open())
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(RECONNECT_SECONDS * 4):
                    await self._ready.wait()
            except TimeoutError:
                return False
        return True

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait(task)

    async def _keep_open(self) -> None:
        while True:
            try:
                connection = await self._connect()
            except (*DRIVER_ERRORS, StoreError):
                log.debug("Opening the listener connection to PostgreSQL failed; retrying", exc_info=True)
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            terminated = asyncio.Event()
            try:
                connection.add_termination_listener(lambda _, terminated=terminated: terminated.set())
                await connection.execute(f"SELECT pg_advisory_lock(hashtext('{INSTANCE_LOCK}'), {self._key})")
                await connection.add_listener(CHANNEL, lambda *_: self._notify())
                self._ready.set()
                self._notify()  # there may be events from before we listened
                await terminated.wait()
            except DRIVER_ERRORS:
                log.debug("The listener connection to PostgreSQL broke; reconnecting", exc_info=True)
            finally:
                self._ready.clear()
                connection.terminate()
            await asyncio.sleep(RECONNECT_SECONDS)
