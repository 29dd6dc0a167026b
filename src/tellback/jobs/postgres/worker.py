"""The worker that procrastinate feeds."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tellback.background import stopped
from tellback.errors import StoreClosedError
from tellback.jobs.dispatching import Dispatcher
from tellback.jobs.runner import RETRY_SECONDS
from tellback.jobs.worker import Worker, first_of

if TYPE_CHECKING:
    from tellback.jobs.postgres.service import Service

log = logging.getLogger("tellback.jobs")

STOP_SECONDS = 5.0
"""How much longer than its jobs a stopping queue may take."""

LONGEST_PAUSE = 30.0
"""Before the queue is opened again that could not be, time after time."""


class QueueWorker(Worker):
    """Runs jobs that a queue in PostgreSQL brings to it, beside any number of others on any number of machines."""

    _pause = RETRY_SECONDS

    async def _work(self) -> None:
        while not self._stopping.is_set():
            begun = time.monotonic()
            try:
                await self._serve()
            except StoreClosedError:
                return
            except Exception:  # a worker outlives mistakes and outages: the log tells of them
                log.exception("the queue of %s is interrupted; trying again", self._store.url)
            if time.monotonic() - begun > LONGEST_PAUSE:
                self._pause = RETRY_SECONDS
            if not self._stopping.is_set():
                await first_of(self._stopping, seconds=self._pause)
                self._pause = min(self._pause * 2, LONGEST_PAUSE)

    async def _serve(self) -> None:
        """Work until told to stop, or until something breaks."""
        # Here, since many processes have no jobs at all and should not wait for it.
        from tellback.jobs.postgres.service import Service

        store: Any = self._store
        service = Service(store.queue_settings(), store, self._runner, self._options, self._clock)
        async with service.opened():
            dispatcher = Dispatcher(self._store, self._options, self._clock, service.deliver, self._hurry)
            side = [
                asyncio.create_task(self._kept_up("dispatching events", dispatcher.run)),
                asyncio.create_task(self._kept_up("delivering jobs", partial(self._delivering, service))),
            ]
            serving = asyncio.create_task(service.run(), name="tellback queue")
            stopping = asyncio.create_task(self._stopping.wait(), name="until the worker stops")
            try:
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await stopped(*side, stopping)
                service.stop()
                # A server that is down answers nothing: what was delivered comes back when its lease is over.
                await asyncio.wait({serving}, timeout=self._options.grace + STOP_SECONDS)
                if not serving.done():
                    log.warning("the queue of %s did not stop in time", self._store.url)
                    await stopped(serving)
                else:
                    await serving

    async def _delivering(self, service: Service) -> None:
        """Look from time to time for jobs without a delivery: whoever made them may have died in between."""
        while True:
            await asyncio.sleep(self._options.poll)
            await service.deliver()
