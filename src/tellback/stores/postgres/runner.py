"""Runs operations on a pool of PostgreSQL connections: transactions, retries, and what a broken connection leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, TellbackError
from tellback.stores.catalogue import Statement
from tellback.stores.engine import EVENT_STATEMENT, Operation, OperationFactory, T
from tellback.stores.postgres.connection import (
    DRIVER_ERRORS,
    is_connection_lost,
    is_retryable,
    roll_back,
    to_store_error,
)

MAX_ATTEMPTS = 4


class PostgresRunner:
    """Runs operations, each in a transaction of its own. Who opens the pool, and how, is up to the subclass.

    `place` names the database in errors.
    """

    place: str

    def __init__(self) -> None:
        self._statements: Mapping[str, Statement] = {}
        self._pool: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._active_count = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def _acquire_seconds(self) -> float:
        """How long to wait for a free connection."""
        raise NotImplementedError

    def _closed_error(self) -> StoreClosedError:
        raise NotImplementedError

    def _translate_error(self, error: BaseException, *, in_doubt: bool) -> TellbackError:
        return to_store_error(error, self.place, in_doubt=in_doubt)

    async def _close_pool(self, pool: Any, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_idle.wait()  # the pool would cut short what has not quite got its connection yet
                await pool.close()
        except DRIVER_ERRORS:
            pool.terminate()
        except asyncio.CancelledError:
            pool.terminate()  # nobody else can end it any more
            raise

    async def _run_with_retries(
        self,
        make: OperationFactory[T],
        values: dict[str, Any],
        begin: str | None,
        *,
        writes: bool,
        seconds: float | None = None,
    ) -> tuple[T, bool]:
        """Run an operation, again on another connection when the first broke before anything could be kept.

        Without `begin` it has no transaction. A statement may take so many `seconds`, by default the connection's own
        limit. Gives the operation's result, and whether it wrote events.
        """
        attempt = 0
        while True:
            attempt += 1
            committing = False
            self._active_count += 1
            self._is_idle.clear()
            try:
                async with self._connection() as connection:
                    try:
                        if begin is None:
                            return await self._run(connection, values, make(), seconds)
                        await connection.execute(begin, timeout=seconds)
                        result = await self._run(connection, values, make(), seconds)
                        committing = writes
                        await connection.execute("COMMIT", timeout=seconds)
                        return result
                    except BaseException:
                        await roll_back(connection, "SELECT 1" if begin is None else "ROLLBACK")
                        raise
            except DRIVER_ERRORS as error:
                should_retry = is_retryable(error) or (is_connection_lost(error) and not committing)
                if should_retry and attempt < MAX_ATTEMPTS:
                    await asyncio.sleep(0.01 * attempt * attempt)
                    continue
                in_doubt = committing and (is_connection_lost(error) or isinstance(error, TimeoutError))
                raise self._translate_error(error, in_doubt=in_doubt) from error
            finally:
                self._active_count -= 1
                if not self._active_count:
                    self._is_idle.set()

    async def _run(
        self, connection: Any, values: dict[str, Any], operation: Operation[T], seconds: float | None
    ) -> tuple[T, bool]:
        statements = self._statements
        wrote_events = False
        try:
            name, parameters = next(operation)
            while True:
                wrote_events = wrote_events or name == EVENT_STATEMENT
                statement = statements[name]
                bound = {**values, **parameters}
                rows = await connection.fetch(
                    statement.sql, *[bound[key] for key in statement.parameters], timeout=seconds
                )
                name, parameters = operation.send(rows)
        except StopIteration as stop:
            result: T = stop.value
            return result, wrote_events

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise self._closed_error()
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(f"{self.place} was opened in another event loop: open it in this one.")
        try:
            connection = await pool.acquire(timeout=self._acquire_seconds)
        except TimeoutError as error:
            if pool.get_size() < pool.get_max_size():
                raise  # it was the server that did not answer
            raise StoreBusyError(
                f"No connection to {self.place} became free within {self._acquire_seconds:g} seconds: raise the size of"
                " the pool (pool_size), or do less at once."
            ) from error
        try:
            yield connection
        finally:
            with contextlib.suppress(*DRIVER_ERRORS):  # it broke just now; what was done with it is done all the same
                await pool.release(connection)
