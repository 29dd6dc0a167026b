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
    FAILURES,
    ConnectError,
    is_lost,
    may_try_again,
    place_of,
    store_error,
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
class _Try:
    """How far one try has come, and what came before it."""

    again: bool = False
    lost: bool = False
    committing: bool = False


class Database:
    """Runs what is to be read and written, on an engine of its own or of the user's."""

    def __init__(self, engine: AsyncEngine | str) -> None:
        self.own = isinstance(engine, str)
        self.engine = _engine(engine)
        self.place = place_of(self.engine.url)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = asyncio.Lock()
        self._running = 0
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    @property
    def dialect(self) -> str:
        """The kind of database."""
        return self.engine.dialect.name

    async def open(self) -> None:
        """Belong to the running event loop."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            if self._loop is not None and not self._loop.is_closed():
                raise self._elsewhere()
            await self._give_up(close=False)
        self._loop = loop

    async def close(self) -> None:
        """Give up the connections, once those who use them are done; not those of the user's engine."""
        if self._loop is None:
            return
        here = self._loop is asyncio.get_running_loop()
        if here:
            try:
                async with asyncio.timeout(OPERATION_SECONDS):
                    await self._at_rest.wait()
            except TimeoutError:
                pass  # each has a time of its own, which is about to end too
        await self._give_up(close=here)

    async def _give_up(self, *, close: bool) -> None:
        self._loop = None
        self._turns, self._at_rest, self._running = asyncio.Lock(), asyncio.Event(), 0
        self._at_rest.set()
        if self.own:
            await self.engine.dispose(close=close)

    async def read(self, work: Work[T]) -> T:
        """Run what changes nothing."""
        return await self._run(work, writes=False, seconds=OPERATION_SECONDS)

    async def write(self, work: Work[T], *, seconds: float = OPERATION_SECONDS) -> T:
        """Run what is stored whole or not at all."""
        return await self._run(work, writes=True, seconds=seconds)

    async def _run(self, work: Work[T], *, writes: bool, seconds: float) -> T:
        if self._loop is not asyncio.get_running_loop():
            raise self._elsewhere()
        with self._counted():
            return await self._attempts(work, self._loop, writes=writes, seconds=seconds)

    async def _attempts(self, work: Work[T], loop: asyncio.AbstractEventLoop, *, writes: bool, seconds: float) -> T:
        until = loop.time() + BUSY_SECONDS
        this = _Try()
        while True:
            try:
                async with AsyncExitStack() as stack:
                    if self._takes_turns(writes):
                        await stack.enter_async_context(self._turns)
                    if self.dialect == "sqlite":
                        return await self._undisturbed(self._once(work, this, writes=writes))
                    await stack.enter_async_context(asyncio.timeout(seconds))
                    return await self._once(work, this, writes=writes)
            except (*FAILURES, ConnectError) as error:
                following = self._next(this, error, until)
                if following is None:
                    in_doubt = this.committing and (is_lost(error) or isinstance(error, TimeoutError))
                    raise store_error(error, self.engine.url, in_doubt=in_doubt) from error
                this = following
            if not this.lost:
                await asyncio.sleep(random.uniform(0.005, 0.05))

    def _next(self, this: _Try, error: BaseException, until: float) -> _Try | None:
        """The try that follows a failed one, if one may."""
        loop = asyncio.get_running_loop()
        if may_try_again(error):
            return _Try(this.again, this.lost) if loop.time() < until else None
        if isinstance(error, IntegrityError):
            return None if this.again else _Try(again=True, lost=this.lost)
        cause = error.__cause__ if isinstance(error, ConnectError) else error
        if cause is not None and is_lost(cause) and not this.committing and not this.lost:
            return _Try(this.again, lost=True)
        return None

    async def _once(self, work: Work[T], this: _Try, *, writes: bool) -> T:
        async with AsyncExitStack() as stack:
            connection = await self._connect()
            stack.push_async_exit(connection)
            if not writes:
                return await work(connection, this.again)
            await self._begin(connection)
            result = await work(connection, this.again)
            this.committing = True
            await connection.commit()
            return result

    async def _undisturbed(self, doing: Coroutine[Any, Any, T]) -> T:
        """Wait for the end even when cancelled.

        A statement of SQLite's that is cut short keeps the file locked for as long as anything refers to it.
        """
        task = asyncio.create_task(doing)
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

    def _takes_turns(self, writes: bool) -> bool:
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
    def _counted(self) -> Iterator[None]:
        at_rest = self._at_rest
        self._running += 1
        at_rest.clear()
        try:
            yield
        finally:
            if at_rest is self._at_rest:
                self._running -= 1
                if not self._running:
                    at_rest.set()

    def _elsewhere(self) -> ConfigurationError:
        return ConfigurationError(
            f"The adapter of {self.place} was initialized in another event loop: use it there, or disconnect it there"
            " and initialize it in this one."
        )


def _engine(engine: AsyncEngine | str) -> AsyncEngine:
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
    return _made(url)


def _made(url: URL) -> AsyncEngine:
    arguments = _CONNECT_ARGUMENTS.get(url.drivername.partition("+")[2], {})
    given = {name: value for name, value in arguments.items() if name not in url.query}
    options: dict[str, Any] = {"pool_pre_ping": True, "hide_parameters": True, "connect_args": given}
    if url.get_backend_name() != "sqlite":
        options["pool_timeout"] = POOL_SECONDS
    backend = url.get_backend_name()
    try:
        return create_async_engine(url, **options)
    except NoSuchModuleError as error:
        raise ConfigurationError(f"SQLAlchemy knows no database {url.drivername!r}: check the URL.") from error
    except ModuleNotFoundError as error:
        if "+" not in url.drivername:
            raise _needs_driver(backend) from error
        raise ConfigurationError(f"{url.drivername} needs the package {error.name!r}: pip install it.") from error
    except InvalidRequestError as error:
        raise _needs_driver(backend) from error
    except (ArgumentError, TypeError, ValueError) as error:
        raise ConfigurationError(f"No engine can be made for {place_of(url)}: {type(error).__name__}.") from None


def _needs_driver(backend: str) -> ConfigurationError:
    driver = _DRIVERS.get(backend, "…")
    return ConfigurationError(f"The URL needs a driver for asyncio: begin it with {backend}+{driver}://.")
