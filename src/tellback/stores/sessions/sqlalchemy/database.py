"""The engine behind the adapter: transactions that are tried again where that cannot do anything twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import URL, StaticPool, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, InvalidRequestError, NoSuchModuleError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tellback.errors import ConfigurationError
from tellback.stores.sessions.sqlalchemy.failures import (
    DATABASE_ERRORS,
    ConnectError,
    describe_url,
    is_connection_lost,
    is_transient,
    translate_error,
)

T = TypeVar("T")
Work: TypeAlias = Callable[[AsyncConnection, bool], Awaitable[T]]
"""What to do in a transaction. It is told whether it is done again, because something it wrote was there already."""

CONNECT_SECONDS = 5.0
POOL_SECONDS = 20.0
OPERATION_SECONDS = 30.0
BUSY_SECONDS = 10.0
"""How long to try again what others stand in the way of."""

_CONNECT_ARGUMENTS: dict[str, dict[str, Any]] = {
    "asyncpg": {"timeout": CONNECT_SECONDS},
    "psycopg": {"connect_timeout": int(CONNECT_SECONDS)},
    "psycopg_async": {"connect_timeout": int(CONNECT_SECONDS)},
    "aiosqlite": {"timeout": CONNECT_SECONDS},
    "aiomysql": {"connect_timeout": int(CONNECT_SECONDS)},
    "asyncmy": {"connect_timeout": int(CONNECT_SECONDS)},
}
_DRIVERS = {"postgresql": "asyncpg", "sqlite": "aiosqlite", "mysql": "asyncmy", "mariadb": "asyncmy"}


@dataclass(slots=True)
class _Attempt:
    """How far one try has come, and what came before it."""

    is_repeat: bool = False
    reconnected: bool = False
    is_committing: bool = False


class Database:
    """Runs what is to be read and written, on an engine of its own or of the user's."""

    def __init__(self, engine: AsyncEngine | str) -> None:
        self.owns_engine = isinstance(engine, str)
        self.engine = _resolve_engine(engine)
        self.place = describe_url(self.engine.url)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer_lock = asyncio.Lock()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def dialect(self) -> str:
        """The kind of database."""
        return self.engine.dialect.name

    async def open(self) -> None:
        """Belong to the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            if self._loop is not None and not self._loop.is_closed():
                raise self._wrong_loop_error()
            await self._release(close=False)
        self._loop = loop

    async def close(self) -> None:
        """Give up the connections, once those who use them are done; not those of the user's engine."""
        if self._loop is None:
            return
        here = self._loop is asyncio.get_running_loop()
        if here:
            try:
                async with asyncio.timeout(OPERATION_SECONDS):
                    await self._idle.wait()
            except TimeoutError:
                pass  # each has a time of its own, which is about to end too
        await self._release(close=here)

    async def _release(self, *, close: bool) -> None:
        self._loop = None
        self._writer_lock, self._idle, self._running = asyncio.Lock(), asyncio.Event(), 0
        self._idle.set()
        if self.owns_engine:
            await self.engine.dispose(close=close)

    async def read(self, work: Work[T]) -> T:
        """Run what changes nothing."""
        return await self._run(work, writes=False, seconds=OPERATION_SECONDS)

    async def write(self, work: Work[T], *, seconds: float = OPERATION_SECONDS) -> T:
        """Run what is stored whole or not at all."""
        return await self._run(work, writes=True, seconds=seconds)

    async def _run(self, work: Work[T], *, writes: bool, seconds: float) -> T:
        if self._loop is not asyncio.get_running_loop():
            raise self._wrong_loop_error()
        with self._count_running():
            return await self._run_with_retries(work, self._loop, writes=writes, seconds=seconds)

    async def _run_with_retries(
        self, work: Work[T], loop: asyncio.AbstractEventLoop, *, writes: bool, seconds: float
    ) -> T:
        retry_deadline = loop.time() + BUSY_SECONDS
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
            except (*DATABASE_ERRORS, ConnectError) as error:
                next_attempt = self._next_attempt(attempt, error, retry_deadline)
                if next_attempt is None:
                    in_doubt = attempt.is_committing and (is_connection_lost(error) or isinstance(error, TimeoutError))
                    raise translate_error(error, self.engine.url, in_doubt=in_doubt) from error
                attempt = next_attempt
            if not attempt.reconnected:
                await asyncio.sleep(random.uniform(0.005, 0.05))

    def _next_attempt(self, attempt: _Attempt, error: BaseException, retry_deadline: float) -> _Attempt | None:
        """The try that follows a failed one, if one may."""
        loop = asyncio.get_running_loop()
        if is_transient(error):
            return _Attempt(attempt.is_repeat, attempt.reconnected) if loop.time() < retry_deadline else None
        if isinstance(error, IntegrityError):
            return None if attempt.is_repeat else _Attempt(is_repeat=True, reconnected=attempt.reconnected)
        cause = error.__cause__ if isinstance(error, ConnectError) else error
        if cause is not None and is_connection_lost(cause) and not attempt.is_committing and not attempt.reconnected:
            return _Attempt(attempt.is_repeat, reconnected=True)
        return None

    async def _run_once(self, work: Work[T], attempt: _Attempt, *, writes: bool) -> T:
        async with AsyncExitStack() as stack:
            connection = await self._connect()
            stack.push_async_exit(connection)
            if not writes:
                return await work(connection, attempt.is_repeat)
            await self._begin(connection)
            result = await work(connection, attempt.is_repeat)
            attempt.is_committing = True
            await connection.commit()
            return result

    async def _run_uncancelled(self, operation: Coroutine[Any, Any, T]) -> T:
        """Wait for the end even when cancelled.

        A statement of SQLite's that is cut short keeps the file locked for as long as anything refers to it.
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
                task.exception()  # nobody is there to hear of it
            raise asyncio.CancelledError
        return task.result()

    def _needs_lock(self, writes: bool) -> bool:
        """SQLite has one writer at a time. A connection that all share can do only one thing at a time."""
        return isinstance(self.engine.pool, StaticPool) or (writes and self.dialect == "sqlite")

    async def _connect(self) -> AsyncConnection:
        try:
            return await self.engine.connect().start()
        except TimeoutError:
            raise
        except Exception as error:  # drivers raise what they like here, and SQLAlchemy lets most of it through
            raise ConnectError from error

    async def _begin(self, connection: AsyncConnection) -> None:
        await connection.begin()
        if self.dialect != "sqlite":
            return
        raw = await connection.get_raw_connection()
        # Its driver begins transactions late, and not for every statement. An engine may do that by itself.
        if not getattr(raw.driver_connection, "in_transaction", False):
            await connection.exec_driver_sql("BEGIN IMMEDIATE")

    @contextmanager
    def _count_running(self) -> Iterator[None]:
        idle = self._idle
        self._running += 1
        idle.clear()
        try:
            yield
        finally:
            if idle is self._idle:
                self._running -= 1
                if not self._running:
                    idle.set()

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
            f"SqlAlchemyAdapter takes an AsyncEngine or a URL such as 'postgresql+asyncpg://…', not a"
            f" {type(engine).__name__}."
        )
    try:
        url = make_url(engine)
    except (ArgumentError, ValueError):  # what they say may hold the password
        raise ConfigurationError(
            "The database's URL cannot be read: write it as 'postgresql+asyncpg://user:password@host/database' or"
            " 'sqlite+aiosqlite:///file.db', with special characters of the password as %XX."
        ) from None
    return _create_engine(url)


def _create_engine(url: URL) -> AsyncEngine:
    arguments = _CONNECT_ARGUMENTS.get(url.drivername.partition("+")[2], {})
    connect_args = {name: value for name, value in arguments.items() if name not in url.query}
    options: dict[str, Any] = {"pool_pre_ping": True, "hide_parameters": True, "connect_args": connect_args}
    if url.get_backend_name() != "sqlite":
        options["pool_timeout"] = POOL_SECONDS
    backend = url.get_backend_name()
    try:
        return create_async_engine(url, **options)
    except NoSuchModuleError as error:
        raise ConfigurationError(f"SQLAlchemy knows no database {url.drivername!r}: check the URL.") from error
    except ModuleNotFoundError as error:
        if "+" not in url.drivername:
            raise _missing_driver_error(backend) from error
        raise ConfigurationError(f"{url.drivername} needs the package {error.name!r}: pip install it.") from error
    except InvalidRequestError as error:
        raise _missing_driver_error(backend) from error
    except (ArgumentError, TypeError, ValueError) as error:
        raise ConfigurationError(f"No engine can be made for {describe_url(url)}: {type(error).__name__}.") from None


def _missing_driver_error(backend: str) -> ConfigurationError:
    driver = _DRIVERS.get(backend, "…")
    return ConfigurationError(f"The URL needs a driver for asyncio: begin it with {backend}+{driver}://.")
