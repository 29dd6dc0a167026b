"""Which worker suits a store."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from recollect.jobs.embedded import EmbeddedWorker
from recollect.jobs.options import DEFAULTS, WorkerOptions
from recollect.jobs.runner import Handler
from recollect.jobs.schedule import Schedule
from recollect.jobs.worker import Worker
from recollect.stores import Store
from recollect.types.times import utc_now

log = logging.getLogger("recollect.jobs")


def open_worker(
    store: Store,
    handlers: Mapping[str, Handler],
    *,
    schedules: Sequence[Schedule] = (),
    options: WorkerOptions = DEFAULTS,
    clock: Callable[[], datetime] = utc_now,
) -> Worker:
    """The worker for a store, not yet started: fed by a queue on PostgreSQL, and one that looks itself elsewhere.

    >>> from recollect.stores import open_store
    >>> type(open_worker(open_store(":memory:"), {})).__name__
    'EmbeddedWorker'
    """
    if hasattr(store, "queue_settings"):
        if sys.platform == "win32":
            log.info("psycopg does not run on the event loop of Windows: this worker polls for jobs")
        elif not all(map(importlib.util.find_spec, ("procrastinate", "psycopg"))):
            log.warning("procrastinate is missing (pip install 'recollect[postgres]'): this worker polls for jobs")
        else:
            from recollect.jobs.postgres import QueueWorker

            return QueueWorker(store, handlers, schedules=schedules, options=options, clock=clock)
    return EmbeddedWorker(store, handlers, schedules=schedules, options=options, clock=clock)
