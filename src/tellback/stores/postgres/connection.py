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
"""Of a connection that ended. The driver calls it an internal error when the end comes between two of its steps."""

DRIVER_ERRORS = (asyncpg.PostgresError, *_CONNECTION_ERRORS, TimeoutError)
"""What the driver raises when it is not our mistake."""

_RETRYABLE_STATES = ("40001", "40P01")  # serialization failure, deadlock


ROLLBACK_SECONDS = 2.0
"""How long undoing may take."""

CHANNEL = "tellback_events"
INSTANCE_LOCK = "tellback.instance"
RECONNECT_SECONDS = 0.5


def is_connection_lost(error: BaseException) -> bool:
    """Whether the connection is gone, so that another one may work."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = error.sqlstate or ""
        return sqlstate.startswith("08") or sqlstate in ("57P01", "57P02", "57P03", "57P05", "25P03")
    return isinstance(error, _CONNECTION_ERRORS) and not isinstance(error, TimeoutError)


def is_retryable(error: BaseException) -> bool:
    """Whether the transaction was undone, for others' sake or for tables that changed, and may be run again."""
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
    """What went wrong, and what to do about it. `advice` is for a change that is `in_doubt`."""
    doubt_note = f" The change may have been stored: {advice}." if in_doubt else ""
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


async def roll_back(connection: Any, statement: str = "ROLLBACK") -> None:
    """Leave the connection clean for whoever gets it next, or close it."""
    try:
        async with asyncio.timeout(ROLLBACK_SECONDS):
            if not connection.is_closed():
                await connection.execute(statement)
    except asyncio.CancelledError:
        _terminate(connection)  # a connection in an unknown state must not be used again
        raise
    except Exception:  # noqa: BLE001
        _terminate(connection)  # what went wrong before is what the caller should hear of


async def skip_reset(connection: Any) -> None:
    """Nothing outlives our transactions, so a connection needs no cleaning between them."""


def _terminate(connection: Any) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):  # the pool has taken it back after a timeout, and closed it
        connection.terminate()


class ListenerConnection:
    """Opened when first needed, and again whenever it breaks."""

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], key: int, notify: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._key = key
        self._notify = notify
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def ensure_open(self) -> bool:
        """Have the session up; False if that does not succeed in a while. It goes on trying."""
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
                log.debug("no session with PostgreSQL", exc_info=True)
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            terminated = asyncio.Event()
            try:
                connection.add_termination_listener(lambda _, terminated=terminated: terminated.set())
                await connection.execute(f"SELECT pg_advisory_lock(hashtext('{INSTANCE_LOCK}'), {self._key})")
                await connection.add_listener(CHANNEL, lambda *_: self._notify())
                self._ready.set()
                self._notify()  # what happened while we could not listen
                await terminated.wait()
            except DRIVER_ERRORS:
                log.debug("the session with PostgreSQL broke", exc_info=True)
            finally:
                self._ready.clear()
                connection.terminate()
            await asyncio.sleep(RECONNECT_SECONDS)
