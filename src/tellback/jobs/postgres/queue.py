"""The queue: a delivery in procrastinate's table for each job in ours.

Our table says what is to be done; the queue only brings it to a worker. A delivery that is lost is made again, and one
too many finds its job taken or over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import procrastinate
import psycopg
from procrastinate import exceptions, jobs
from psycopg import sql

from tellback.stores.postgres.store import QueueSettings
from tellback.types.jobs import Job

QUEUE_NAME = "tellback"
RUN_JOB_TASK = "tellback.run_job"
DELIVERY_BATCH = 500
CONNECT_SECONDS = 10
POOL_TIMEOUT = 5.0
"""How long to wait for a connection: a worker that stops waits no longer for a server that is down."""

_SELECT_UNDELIVERED = """
SELECT id, space_id, due_at
FROM jobs
WHERE (status = 'queued' OR (status = 'running' AND lease_until <= %(at)s))
    AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs AS d WHERE d.queueing_lock = jobs.id AND d.status = 'todo')
    AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs AS d WHERE d.queueing_lock = jobs.id AND d.status = 'doing')
ORDER BY id
LIMIT %(limit)s
"""


_DELETE_STALE_DELIVERIES = """
DELETE FROM procrastinate_jobs AS d
WHERE d.status = 'todo' AND d.task_name = %(task)s
    AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = d.queueing_lock AND jobs.status IN ('queued', 'running'))
"""

_EXPEDITE_DELIVERIES = """
UPDATE procrastinate_jobs AS d
SET scheduled_at = NULL
FROM jobs
WHERE d.status = 'todo' AND d.task_name = %(task)s AND jobs.id = d.queueing_lock AND jobs.status = 'queued'
    AND d.scheduled_at > now() AND jobs.due_at <= %(at)s
"""
"""A delivery holds up all later ones of its space: none may stand for what is over, or wait longer than its job."""


def create_app(settings: QueueSettings, pool_size: int) -> procrastinate.App:
    """procrastinate on our database, in our schema and under our role."""

    async def configure(connection: psycopg.AsyncConnection) -> None:
        await connection.set_autocommit(True)
        if not settings.uses_prepared_statements:
            connection.prepare_threshold = None
        await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(settings.schema)))
        # What a crash of the server takes with it is delivered again: nobody needs to wait for its disk.
        await connection.execute("SET synchronous_commit TO off")
        await connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(settings.role)))

    connector = procrastinate.PsycopgConnector(
        conninfo=settings.dsn,
        kwargs={"application_name": "tellback", "connect_timeout": CONNECT_SECONDS},
        configure=configure,
        min_size=1,
        max_size=pool_size,
        timeout=POOL_TIMEOUT,
    )
    return procrastinate.App(connector=connector)


class DeliveryQueue:
    """Deliveries of jobs."""

    def __init__(self, app: procrastinate.App) -> None:
        self._app = app

    async def deliver(self) -> int:
        """Make a delivery for every job that waits and has none, in the jobs' order; gives how many."""
        delivered = 0
        while True:
            async with self._exclusive_transaction() as connection:
                at = datetime.now(UTC).timestamp() * 1_000_000
                values = {"at": int(at), "limit": DELIVERY_BATCH, "task": RUN_JOB_TASK}
                await connection.execute(_DELETE_STALE_DELIVERIES, values)
                await connection.execute(_EXPEDITE_DELIVERIES, values)
                cursor = await connection.execute(_SELECT_UNDELIVERED, values)
                rows = await cursor.fetchall()
                if rows:
                    await self._defer(
                        connection, [_build_delivery(id, space, due / 1_000_000) for id, space, due in rows]
                    )
            delivered += len(rows)
            if len(rows) < DELIVERY_BATCH:
                return delivered

    async def redeliver_last(self, job: Job, at: float) -> None:
        """Deliver a job anew behind all others of its space: the one at hand came before an earlier job's."""
        await self.deliver()
        async with self._exclusive_transaction() as connection:
            select_waiting = "SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = %s AND status = 'todo'"
            cursor = await connection.execute(select_waiting, [job.id])
            if await cursor.fetchone() is None:
                await self._defer(connection, [_build_delivery(job.id, job.memory_space_id, at)])

    async def reclaim(self, released: Sequence[Job], silent_seconds: float) -> int:
        """Put back what was delivered to workers that are gone: those whose jobs were released, and those that gave no
        sign for so many seconds; gives how many."""
        manager = self._app.job_manager
        stalled = list(await manager.get_stalled_jobs(queue=QUEUE_NAME, seconds_since_heartbeat=silent_seconds))
        for job in released:
            stalled += await manager.list_jobs_async(queueing_lock=job.id, status="doing")
        for delivery in {delivery.id: delivery for delivery in stalled}.values():
            await self._reclaim_delivery(delivery)
        return len(stalled)

    async def _reclaim_delivery(self, delivery: jobs.Job) -> None:
        manager = self._app.job_manager
        try:
            if delivery.task_name == RUN_JOB_TASK:
                await manager.retry_job(delivery)
                return
        except exceptions.UniqueViolation:  # there is another one for the same job
            pass
        except exceptions.ConnectorException as error:
            if not is_delivery_gone(error):
                raise
            return
        try:
            await manager.finish_job(delivery, jobs.Status.FAILED, delete_job=True)
        except exceptions.ConnectorException as error:
            if not is_delivery_gone(error):
                raise

    @asynccontextmanager
    async def _exclusive_transaction(self) -> AsyncIterator[Any]:
        """A transaction that sees every user's jobs, while no other process makes deliveries."""
        connector: Any = self._app.connector
        async with connector.pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('tellback.platform', 'on', true)")
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('tellback.queue'), hashtext(current_schema()))"
            )
            yield connection

    async def _defer(self, connection: Any, deliveries: list[jobs.Job]) -> None:
        await self._app.job_manager.batch_defer_jobs_async(deliveries, connection=connection)


def _build_delivery(id: str, space_id: str, at: float) -> jobs.Job:
    # The lock lets one job of a space run at a time; the queueing lock lets one delivery of a job wait.
    scheduled_at = datetime.fromtimestamp(at, UTC)
    return jobs.Job(
        queue=QUEUE_NAME,
        lock=space_id,
        queueing_lock=id,
        task_name=RUN_JOB_TASK,
        task_kwargs={"job_id": id},
        scheduled_at=scheduled_at if scheduled_at > datetime.now(UTC) else None,
    )


def is_delivery_gone(error: BaseException) -> bool:
    """Whether the delivery has ended by itself meanwhile."""
    return isinstance(error, exceptions.ConnectorException) and isinstance(
        error.__cause__, psycopg.errors.RaiseException
    )
