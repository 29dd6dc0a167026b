"""`QueueWorker`: the worker that receives its jobs from the PostgreSQL queue.

Imports procrastinate only when it starts to work: many processes never run a job."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from tellback.concurrency import cancel_and_wait
from tellback.errors import StoreClosedError
from tellback.jobs.runner import RETRY_SECONDS
from tellback.jobs.scheduler import Dispatcher
from tellback.jobs.worker import Worker, wait_for_first

if TYPE_CHECKING:
    from tellback.jobs.postgres.queue import QueueService

log = logging.getLogger("tellback.jobs")

STOP_TIMEOUT = 5.0
"""How much longer than its jobs a stopping queue may take."""

MAX_RETRY_PAUSE = 30.0
"""Before the queue is opened again that could not be, time after time."""


class QueueWorker(Worker):
    """Runs jobs that a queue in PostgreSQL brings to it, beside any number of others on any number of machines."""

    _retry_pause = RETRY_SECONDS

    async def _work(self) -> None:
        while not self._stop_event.is_set():
            started = time.monotonic()
            try:
                await self._serve()
            except StoreClosedError:
                return
            except Exception:  # a worker outlives mistakes and outages: the log tells of them
                log.exception("the queue of %s is interrupted; trying again", self._store.url)
            if time.monotonic() - started > MAX_RETRY_PAUSE:
                self._retry_pause = RETRY_SECONDS
            if not self._stop_event.is_set():
                await wait_for_first(self._stop_event, timeout_seconds=self._retry_pause)
                self._retry_pause = min(self._retry_pause * 2, MAX_RETRY_PAUSE)

    async def _serve(self) -> None:
        """Work until told to stop, or until something breaks."""
        # Here, since many processes have no jobs at all and should not wait for it.
        from tellback.jobs.postgres.queue import QueueService

        store: Any = self._store
        service = QueueService(store.queue_settings(), store, self._runner, self._options, self._clock)
        async with service.open():
            dispatcher = Dispatcher(self._store, self._options, self._clock, service.deliver, self._urgent)
            side_tasks = [
                asyncio.create_task(self._supervise("dispatching events", dispatcher.run)),
                asyncio.create_task(self._supervise("delivering jobs", partial(self._deliver_missing, service))),
            ]
            service_task = asyncio.create_task(service.run(), name="tellback queue")
            stop_task = asyncio.create_task(self._stop_event.wait(), name="until the worker stops")
            try:
                await asyncio.wait({service_task, stop_task}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_and_wait(*side_tasks, stop_task)
                service.stop()
                # A server that is down answers nothing: what was delivered comes back when its lease is over.
                await asyncio.wait({service_task}, timeout=self._options.grace + STOP_TIMEOUT)
                if not service_task.done():
                    log.warning("the queue of %s did not stop in time", self._store.url)
                    await cancel_and_wait(service_task)
                else:
                    await service_task

    async def _deliver_missing(self, service: QueueService) -> None:
        """Look from time to time for jobs without a delivery: whoever made them may have died in between."""
        while True:
            await asyncio.sleep(self._options.poll)
            await service.deliver()
