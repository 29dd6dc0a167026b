"""The PostgreSQL engine: a connection pool, transactions that run under a role and scope, and `PostgresStore`.

Session adapters with their own tables (`sessions.sql`) also run on `PostgresRunner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import asyncpg

from tellback.concurrency import cancel_and_wait
from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreUnavailableError, TellbackError
from tellback.stores.catalogue import Statement, statements
from tellback.stores.engine import EVENT_STATEMENT, ChangeNotifier, Operation, OperationFactory, T, scope_values
from tellback.stores.postgres.connection import (
    CHANNEL,
    DRIVER_ERRORS,
    INSTANCE_LOCK,
    ListenerConnection,
    is_connection_lost,
    is_retryable,
    roll_back,
    skip_reset,
    to_store_error,
)
from tellback.stores.postgres.schema import APP_ROLE, migrate, quote_identifier, quote_literal, set_role, vector_schema
from tellback.stores.store import Store
from tellback.types.access import Scope

MAX_ATTEMPTS = 4
ANNOUNCE_SECONDS = 0.02
INSTANCE_GRACE_SECONDS = 2.0
"""How long an instance's lock must be free before the instance counts as gone. A broken connection reopens earlier."""
POLL_SECONDS = 2.0
"""How often to look for changes whose notification was lost."""


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """The connection settings: `dsn` in libpq's form, and the `schema` that contains the tables."""

    dsn: str
    display_url: str
    schema: str = "tellback"
    pool_size: int = 10
    connect_timeout: float = 10.0
    acquire_timeout: float = 30.0
    command_timeout: float = 60.0
    statement_cache_size: int = 100


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings for a job queue in the same database: the location of our tables, and the role that may use them."""

    dsn: str = field(repr=False)
    display_url: str
    schema: str
    role: str
    uses_prepared_statements: bool


class PostgresRunner:
    """Runs each operation in its own transaction. A subclass opens the pool.

    `place` is the database's name in errors, `acquire_seconds` is how long to wait for a free connection.
    """

    place: str
    acquire_seconds: float

    def __init__(self) -> None:
        self._statements: Mapping[str, Statement] = {}
        self._pool: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._active_count = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def _closed_error(self) -> StoreClosedError:
        raise NotImplementedError

    def _translate_error(self, error: BaseException, *, in_doubt: bool) -> TellbackError:
        return to_store_error(error, self.place, in_doubt=in_doubt)

    async def _close_pool(self, pool: Any, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_idle.wait()  # closing the pool cancels tasks that still wait for a connection
                await pool.close()
        except DRIVER_ERRORS:
            pool.terminate()
        except asyncio.CancelledError:
            pool.terminate()  # no other caller has a reference to it
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
        """Run an operation, and retry it on another connection if the first one broke before the commit.

        Without `begin` there is no transaction. `seconds` limits each statement (by default, the connection's own
        limit). Return the operation's result, and whether it wrote events.
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
            connection = await pool.acquire(timeout=self.acquire_seconds)
        except TimeoutError as error:
            if pool.get_size() < pool.get_max_size():
                raise  # the server did not answer
            raise StoreBusyError(
                f"No connection to {self.place} became free within {self.acquire_seconds:g} seconds: raise the size of"
                " the pool (pool_size), or run fewer requests at the same time."
            ) from error
        try:
            yield connection
        finally:
            with contextlib.suppress(*DRIVER_ERRORS):  # the connection broke, but its work was committed
                await pool.release(connection)


class PostgresEngine(PostgresRunner):
    """Runs operations on the store's tables, each under the right role and scope."""

    keeps_deleted_bytes = False
    positions_after_commit = True

    def __init__(self, options: PostgresOptions) -> None:
        super().__init__()
        self.place = options.display_url
        self.acquire_seconds = options.acquire_timeout
        self._options = options
        self.instance_id = ""
        self.search: Literal["none", "words", "meaning"] = "words"
        self._search_path = quote_identifier(options.schema)
        self._notifier = ChangeNotifier()
        self._listener: ListenerConnection | None = None
        self._notify_task: asyncio.Task[None] | None = None
        self._notify_pending = False
        self._poll_task: asyncio.Task[None] | None = None
        self._missing_since: dict[str, tuple[float, float]] = {}
        self._lifecycle_lock = asyncio.Lock()

    async def open(self) -> None:
        async with self._lifecycle_lock:
            if self._pool is None:
                await self._open()

    async def _open(self) -> None:
        options = self._options
        key = secrets.randbits(31)
        self.instance_id = f"pg|{key}"
        self._statements = statements("postgres")
        try:
            connection = await self._connect()
            try:
                await migrate(connection, options.schema, options.display_url)
                vectors = await vector_schema(connection)
                if vectors is not None:
                    self.search, self._search_path = (
                        "meaning",
                        f"{quote_identifier(options.schema)}, {quote_identifier(vectors)}",
                    )
            finally:
                await connection.close()
            self._pool = await asyncpg.create_pool(
                options.dsn,
                min_size=0,
                max_size=options.pool_size,
                init=self._prepare,
                reset=skip_reset,
                **self._connect_settings(),
            )
        except DRIVER_ERRORS as error:
            raise to_store_error(error, options.display_url) from error
        self._loop = asyncio.get_running_loop()
        self._notifier = ChangeNotifier()
        self._listener = ListenerConnection(self._connect_as_role, key, self._notifier.notify)

    async def close(self) -> None:
        async with self._lifecycle_lock:
            pool, self._pool = self._pool, None
            if pool is not None:
                await self._close(pool)

    async def _close(self, pool: Any) -> None:
        self._notifier.close()
        await cancel_and_wait(*(task for task in (self._notify_task, self._poll_task) if task is not None))
        if self._listener is not None:
            await self._listener.close()
        await self._close_pool(pool, self._options.connect_timeout)

    async def read(self, scope: Scope | None, make: OperationFactory[T], *, brief: bool = False) -> T:
        begin = _begin_statement(scope, writes=False)
        result, _ = await self._run_with_retries(make, scope_values(scope), begin, writes=False)
        return result

    async def write(self, scope: Scope | None, make: OperationFactory[T]) -> T:
        begin = _begin_statement(scope, writes=True)
        result, wrote_events = await self._run_with_retries(make, scope_values(scope), begin, writes=True)
        if wrote_events:
            self._announce()
        return result

    async def changes(self) -> AsyncGenerator[None, None]:
        if self._listener is None or self._pool is None:
            raise self._closed_error()
        await self._listener.ensure_open()
        notifications = self._notifier.notifications()
        try:
            async for notification in notifications:
                if self._poll_task is None or self._poll_task.done():
                    self._poll_task = asyncio.create_task(self._poll())
                yield notification
        finally:
            await notifications.aclose()

    async def announce_instance(self) -> None:
        if self._listener is None or self._pool is None:
            raise self._closed_error()
        if not await self._listener.ensure_open():
            raise StoreUnavailableError(
                f"{self._options.display_url}: could not open the listener connection that a turn needs."
                " Check the server's connection limit."
            )

    async def is_instance_alive(self, instance_id: str) -> bool | None:
        """Check the instance's lock, which its listener connection holds. A broken connection is soon reopened."""
        kind, _, key = instance_id.partition("|")
        if kind != "pg" or not key.isdigit():
            return None
        if instance_id == self.instance_id:
            return True
        try:
            async with self._connection() as connection, connection.transaction():
                # Shared: other processes that check at the same time must not look like the instance itself.
                statement = f"SELECT pg_try_advisory_xact_lock_shared(hashtext('{INSTANCE_LOCK}'), {int(key)})"
                is_free: bool = await connection.fetchval(statement)
        except DRIVER_ERRORS as error:
            raise to_store_error(error, self._options.display_url) from error
        if not is_free:
            self._missing_since.pop(instance_id, None)
            return True
        now = asyncio.get_running_loop().time()
        first, last = self._missing_since.get(instance_id, (now, now))
        if now - last > INSTANCE_GRACE_SECONDS:
            first = now  # the last check is too old: the instance may have held its lock since then
        self._missing_since[instance_id] = (first, now)
        return False if now - first > INSTANCE_GRACE_SECONDS else None

    async def wipe(self) -> None:
        """Do nothing: PostgreSQL's vacuum removes deleted rows."""

    async def _connect(self) -> asyncpg.Connection:
        connection: asyncpg.Connection = await asyncpg.connect(self._options.dsn, **self._connect_settings())
        return connection

    async def _connect_as_role(self) -> asyncpg.Connection:
        connection = await self._connect()
        try:
            await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _prepare(self, connection: asyncpg.Connection) -> None:
        await set_role(connection, self._options.display_url)

    def _connect_settings(self) -> dict[str, Any]:
        options = self._options
        return {
            "timeout": options.connect_timeout,
            "command_timeout": options.command_timeout,
            "statement_cache_size": options.statement_cache_size,
            "server_settings": {"search_path": self._search_path, "application_name": "tellback"},
        }

    def _announce(self) -> None:
        """Notify this process now, and other processes soon: one notification covers all changes since the last."""
        self._notifier.notify()
        self._notify_pending = True
        if self._notify_task is None or self._notify_task.done():
            self._notify_task = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        # Not in the change's own transaction: PostgreSQL serializes the commits of transactions that notify.
        while self._notify_pending and self._pool is not None:
            self._notify_pending = False
            try:
                async with self._connection() as connection:
                    await connection.execute(f"NOTIFY {CHANNEL}")
            except (*DRIVER_ERRORS, StoreBusyError, StoreClosedError, StoreUnavailableError):
                return  # listeners also poll
            await asyncio.sleep(ANNOUNCE_SECONDS)

    async def _poll(self) -> None:
        while self._notifier.has_listeners:
            await asyncio.sleep(POLL_SECONDS)
            self._notifier.notify()

    def _closed_error(self) -> StoreClosedError:
        return StoreClosedError(
            f"{self._options.display_url} is not open:"
            " use `async with Tellback(...)`, and use its handles inside the block."
        )


def _begin_statement(scope: Scope | None, *, writes: bool) -> str:
    """Return the statements that begin a transaction limited to the scope's rows, in one round trip."""
    begin = "BEGIN" if writes else "BEGIN READ ONLY"
    if scope is None:
        return f"{begin}; SET LOCAL tellback.platform = 'on'"
    return (
        f"{begin}; SET LOCAL tellback.tenant_id = {quote_literal(scope.tenant_id)};"
        f" SET LOCAL tellback.app_id = {quote_literal(scope.app_id)};"
        f" SET LOCAL tellback.user_id = {quote_literal(scope.user_id)}"
    )


class PostgresStore(Store):
    """The store in a PostgreSQL database.

    >>> PostgresStore("postgresql://app:secret@db/prod").url
    'postgresql://db/prod'
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "tellback",
        pool_size: int = 10,
        statement_cache_size: int = 100,
    ) -> None:
        url = _without_password(dsn)
        options = PostgresOptions(dsn, url, schema, pool_size, statement_cache_size=statement_cache_size)
        self._options = options
        super().__init__(url, PostgresEngine(options))

    def queue_settings(self) -> QueueSettings:
        """Return the settings with which a job queue reaches the same database."""
        options = self._options
        return QueueSettings(
            options.dsn, options.display_url, options.schema, APP_ROLE, options.statement_cache_size > 0
        )


def _without_password(dsn: str) -> str:
    parts = urlsplit(dsn)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
