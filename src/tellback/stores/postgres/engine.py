"""The PostgreSQL engine: a pool of connections, each transaction under the role and scope it is for."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import asyncpg

from tellback.background import stopped
from tellback.errors import ConfigurationError, StoreBusyError, StoreClosedError, StoreUnavailableError
from tellback.stores.catalogue import Statement, statements
from tellback.stores.engine import EVENT, Make, Operation, T, bound
from tellback.stores.postgres.failures import FAILURES, is_lost, may_try_again, store_error
from tellback.stores.postgres.migrate import migrate, take_role, vector_schema
from tellback.stores.postgres.quoting import identifier, literal
from tellback.stores.postgres.session import CHANNEL, OWNER_LOCK, Session
from tellback.stores.postgres.undoing import keep_as_it_is, undo
from tellback.stores.waking import Bell
from tellback.types.scope import Scope

ATTEMPTS = 4
ANNOUNCE_SECONDS = 0.02
MISSED_SECONDS = 2.0
"""How long an owner's lock must be free before the owner counts as gone: a broken session is back before that."""
POLL_SECONDS = 2.0
"""How often to look for changes whose announcement was lost."""


@dataclass(frozen=True, slots=True)
class PostgresOptions:
    """How to reach the database: `dsn` as libpq writes it, the tables in a `schema` of their own."""

    dsn: str
    place: str
    schema: str = "tellback"
    pool_size: int = 10
    connect_timeout: float = 10.0
    acquire_timeout: float = 30.0
    command_timeout: float = 60.0
    statement_cache_size: int = 100


class PostgresEngine:
    """Runs operations on PostgreSQL."""

    leaves_traces = False

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        self.owner = ""
        self.search: Literal["none", "words", "meaning"] = "words"
        self._path = identifier(options.schema)
        self._statements: Mapping[str, Statement] = {}
        self._pool: asyncpg.Pool | None = None
        self._bell = Bell()
        self._session: Session | None = None
        self._announcing: asyncio.Task[None] | None = None
        self._news = False
        self._polling: asyncio.Task[None] | None = None
        self._missed: dict[str, tuple[float, float]] = {}
        self._running = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        async with self._changing:
            if self._pool is None:
                await self._open()

    async def _open(self) -> None:
        options = self._options
        key = secrets.randbits(31)
        self.owner = f"pg|{key}"
        self._statements = statements("postgres")
        try:
            connection = await self._connect()
            try:
                await migrate(connection, options.schema, options.place)
                vectors = await vector_schema(connection)
                if vectors is not None:
                    self.search, self._path = "meaning", f"{identifier(options.schema)}, {identifier(vectors)}"
            finally:
                await connection.close()
            self._pool = await asyncpg.create_pool(
                options.dsn,
                min_size=0,
                max_size=options.pool_size,
                init=self._prepare,
                reset=keep_as_it_is,
                **self._settings(),
            )
        except FAILURES as error:
            raise store_error(error, options.place) from error
        self._loop = asyncio.get_running_loop()
        self._bell = Bell()
        self._session = Session(self._connect_as_role, key, self._bell.ring)

    async def close(self) -> None:
        async with self._changing:
            pool, self._pool = self._pool, None
            if pool is not None:
                await self._close(pool)

    async def _close(self, pool: Any) -> None:
        self._bell.close()
        await stopped(*(task for task in (self._announcing, self._polling) if task is not None))
        if self._session is not None:
            await self._session.close()
        try:
            async with asyncio.timeout(self._options.connect_timeout):
                await self._at_rest.wait()  # the pool would cut short what has not quite got its connection yet
                await pool.close()
        except FAILURES:
            pool.terminate()

    async def read(self, scope: Scope | None, make: Make[T], *, brief: bool = False) -> T:
        result, _ = await self._attempts(scope, make, writes=False)
        return result

    async def write(self, scope: Scope | None, make: Make[T]) -> T:
        result, told = await self._attempts(scope, make, writes=True)
        if told:
            self._announce()
        return result

    async def changes(self) -> AsyncGenerator[None, None]:
        if self._session is None or self._pool is None:
            raise self._closed()
        await self._session.ensure()
        rings = self._bell.rings()
        try:
            async for ring in rings:
                if self._polling is None or self._polling.done():
                    self._polling = asyncio.create_task(self._poll())
                yield ring
        finally:
            await rings.aclose()

    async def show_alive(self) -> None:
        if self._session is None or self._pool is None:
            raise self._closed()
        if not await self._session.ensure():
            raise StoreUnavailableError(
                f"{self._options.place}: this process's own session, which a turn needs, could not be opened."
                " Check the server's connection limit."
            )

    async def is_alive(self, owner: str) -> bool | None:
        """An owner holds the lock of its key for as long as its session lasts; a session that broke is soon back."""
        kind, _, key = owner.partition("|")
        if kind != "pg" or not key.isdigit():
            return None
        if owner == self.owner:
            return True
        try:
            async with self._connection() as connection, connection.transaction():
                # Shared: others who look at the same moment must not be taken for the owner.
                question = f"SELECT pg_try_advisory_xact_lock_shared(hashtext('{OWNER_LOCK}'), {int(key)})"
                free: bool = await connection.fetchval(question)
        except FAILURES as error:
            raise store_error(error, self._options.place) from error
        if not free:
            self._missed.pop(owner, None)
            return True
        now = asyncio.get_running_loop().time()
        first, last = self._missed.get(owner, (now, now))
        if now - last > MISSED_SECONDS:
            first = now  # nobody looked for a while: it may have been back meanwhile
        self._missed[owner] = (first, now)
        return False if now - first > MISSED_SECONDS else None

    async def wipe(self) -> None:
        """The server's own vacuum does."""

    async def _attempts(self, scope: Scope | None, make: Make[T], *, writes: bool) -> tuple[T, bool]:
        """Run an operation, again on another connection when the first broke before anything could be kept.

        Gives its result, and whether it wrote events.
        """
        begin = _begin(scope, writes=writes)
        values = bound(scope)
        attempt = 0
        while True:
            attempt += 1
            committing = False
            self._running += 1
            self._at_rest.clear()
            try:
                async with self._connection() as connection:
                    try:
                        await connection.execute(begin)
                        result = await self._run(connection, values, make())
                        committing = writes
                        await connection.execute("COMMIT")
                        return result
                    except BaseException:
                        await undo(connection)
                        raise
            except FAILURES as error:
                again = may_try_again(error) or (is_lost(error) and not committing)
                if again and attempt < ATTEMPTS:
                    await asyncio.sleep(0.01 * attempt * attempt)
                    continue
                in_doubt = committing and (is_lost(error) or isinstance(error, TimeoutError))
                raise store_error(error, self._options.place, in_doubt=in_doubt) from error
            finally:
                self._running -= 1
                if not self._running:
                    self._at_rest.set()

    async def _run(self, connection: Any, values: dict[str, Any], operation: Operation[T]) -> tuple[T, bool]:
        known = self._statements
        told = False
        try:
            name, given = next(operation)
            while True:
                told = told or name == EVENT
                statement = known[name]
                named = {**values, **given}
                rows = await connection.fetch(statement.sql, *[named[key] for key in statement.parameters])
                name, given = operation.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result, told

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        pool = self._pool
        if pool is None:
            raise self._closed()
        if self._loop is not asyncio.get_running_loop():
            raise ConfigurationError(f"{self._options.place} was opened in another event loop: open it in this one.")
        try:
            connection = await pool.acquire(timeout=self._options.acquire_timeout)
        except TimeoutError as error:
            if pool.get_size() < self._options.pool_size:
                raise  # it was the server that did not answer
            raise StoreBusyError(
                f"No connection to {self._options.place} became free within {self._options.acquire_timeout:g} seconds:"
                " raise pool_size, or do less at once."
            ) from error
        try:
            yield connection
        finally:
            with contextlib.suppress(*FAILURES):  # it broke just now; what was done with it is done all the same
                await pool.release(connection)

    async def _connect(self) -> asyncpg.Connection:
        connection: asyncpg.Connection = await asyncpg.connect(self._options.dsn, **self._settings())
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
        await take_role(connection, self._options.place)

    def _settings(self) -> dict[str, Any]:
        options = self._options
        return {
            "timeout": options.connect_timeout,
            "command_timeout": options.command_timeout,
            "statement_cache_size": options.statement_cache_size,
            "server_settings": {"search_path": self._path, "application_name": "tellback"},
        }

    def _announce(self) -> None:
        """Tell this process at once, and others soon: one notification serves all changes since the last."""
        self._bell.ring()
        self._news = True
        if self._announcing is None or self._announcing.done():
            self._announcing = asyncio.create_task(self._notify())

    async def _notify(self) -> None:
        # Not in the change's own transaction: PostgreSQL commits those with a notification one after the other.
        while self._news and self._pool is not None:
            self._news = False
            try:
                async with self._connection() as connection:
                    await connection.execute(f"NOTIFY {CHANNEL}")
            except (*FAILURES, StoreBusyError, StoreClosedError, StoreUnavailableError):
                return  # whoever listens looks from time to time as well
            await asyncio.sleep(ANNOUNCE_SECONDS)

    async def _poll(self) -> None:
        while self._bell.has_listeners:
            await asyncio.sleep(POLL_SECONDS)
            self._bell.ring()

    def _closed(self) -> StoreClosedError:
        return StoreClosedError(
            f"{self._options.place} is not open: use `async with Tellback(...)`, and the handles inside the block."
        )


def _begin(scope: Scope | None, *, writes: bool) -> str:
    """Open a transaction that may touch only the scope's rows, in one round trip."""
    begin = "BEGIN" if writes else "BEGIN READ ONLY"
    if scope is None:
        return f"{begin}; SET LOCAL tellback.platform = 'on'"
    return (
        f"{begin}; SET LOCAL tellback.tenant_id = {literal(scope.tenant_id)};"
        f" SET LOCAL tellback.app_id = {literal(scope.app_id)}; SET LOCAL tellback.user_id = {literal(scope.user_id)}"
    )
