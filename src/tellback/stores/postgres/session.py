"""The connection a process keeps to itself: it hears of other processes' changes, and its lock shows that we live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import asyncpg

from tellback.background import stopped
from tellback.errors import StoreError
from tellback.stores.postgres.failures import FAILURES

log = logging.getLogger("tellback.stores")

CHANNEL = "tellback_events"
OWNER_LOCK = "tellback.owner"
RETRY_SECONDS = 0.5


class Session:
    """Opened when first needed, and again whenever it breaks."""

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], key: int, ring: Callable[[], None]
    ) -> None:
        self._connect = connect
        self._key = key
        self._ring = ring
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()

    async def ensure(self) -> bool:
        """Have the session up; False if that does not succeed in a while. It goes on trying."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep())
        if not self._ready.is_set():
            try:
                async with asyncio.timeout(RETRY_SECONDS * 4):
                    await self._ready.wait()
            except TimeoutError:
                return False
        return True

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await stopped(task)

    async def _keep(self) -> None:
        while True:
            try:
                connection = await self._connect()
            except (*FAILURES, StoreError):
                log.debug("no session with PostgreSQL", exc_info=True)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            gone = asyncio.Event()
            try:
                connection.add_termination_listener(lambda _, gone=gone: gone.set())
                await connection.execute(f"SELECT pg_advisory_lock(hashtext('{OWNER_LOCK}'), {self._key})")
                await connection.add_listener(CHANNEL, lambda *_: self._ring())
                self._ready.set()
                self._ring()  # what happened while we could not listen
                await gone.wait()
            except FAILURES:
                log.debug("the session with PostgreSQL broke", exc_info=True)
            finally:
                self._ready.clear()
                connection.terminate()
            await asyncio.sleep(RETRY_SECONDS)
