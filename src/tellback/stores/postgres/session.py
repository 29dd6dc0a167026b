"""The connection a process keeps to itself: it hears of other processes' changes, and its lock shows that we live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import asyncpg

from tellback.background import cancel_and_wait
from tellback.errors import StoreError
from tellback.stores.postgres.failures import DRIVER_ERRORS

log = logging.getLogger("tellback.stores")

CHANNEL = "tellback_events"
OWNER_LOCK = "tellback.owner"
RECONNECT_SECONDS = 0.5


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
                await connection.execute(f"SELECT pg_advisory_lock(hashtext('{OWNER_LOCK}'), {self._key})")
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
