"""Which worker suits a store."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from tellback.jobs.embedded import EmbeddedWorker
from tellback.jobs.options import DEFAULT_OPTIONS, WorkerOptions
from tellback.jobs.runner import Handler
from tellback.jobs.schedule import Schedule
from tellback.jobs.worker import Worker
from tellback.stores import Store
from tellback.types.times import utc_now

log = logging.getLogger("tellback.jobs")


def open_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    schedules: Sequence[Schedule] = (),
    options: WorkerOptions = DEFAULT_OPTIONS,
    clock: Callable[[], datetime] = utc_now,
) -> Worker:
    """The worker for a store, not yet started: fed by a queue on PostgreSQL, and one that looks itself elsewhere.

    >>> from tellback.stores import open_store
    >>> type(open_worker(open_store(":memory:"), {})).__name__
    'EmbeddedWorker'
    """
    if hasattr(store, "queue_settings"):
        if sys.platform == "win32":
            log.info("psycopg does not run on the event loop of Windows: this worker polls for jobs")
        elif not all(map(importlib.util.find_spec, ("procrastinate", "psycopg"))):
            log.warning("procrastinate is missing (pip install 'tellback[postgres]'): this worker polls for jobs")
        else:
            from tellback.jobs.postgres import QueueWorker

            return QueueWorker(store, handlers, schedules=schedules, options=options, clock=clock)
    return EmbeddedWorker(store, handlers, schedules=schedules, options=options, clock=clock)
