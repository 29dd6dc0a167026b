"""The procrastinate queue on PostgreSQL: its tables, a delivery for each job, and its worker.

Importing it is slow, so only `tellback.jobs.worker` imports it, when a worker starts. The jobs table has the state of
all jobs; the queue only delivers them to a worker. A lost delivery is created again, and a superfluous one does
nothing, because its job is already claimed or finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import procrastinate
import psycopg
from procrastinate import exceptions, jobs, retry, worker
from procrastinate.schema import SchemaManager
from psycopg import sql

from tellback.errors import SchemaVersionError, StoreError
from tellback.jobs.runner import RETRY_SECONDS, JobRunner, WorkerOptions
from tellback.jobs.worker import requeue_orphaned_jobs
from tellback.stores import Store
from tellback.stores.postgres import QueueSettings
from tellback.types.jobs import Job, JobStatus

DELIVERY_INDEXES = (
    "CREATE INDEX tellback_deliveries_of_space ON procrastinate_jobs (lock) WHERE status IN ('todo', 'doing')",
    "CREATE INDEX tellback_deliveries_at_work ON procrastinate_jobs (queueing_lock) WHERE status = 'doing'",
)
"""Without these indexes, fetching one of a thousand deliveries takes a hundred times as long."""

QUEUE_NAME = "tellback"
RUN_JOB_TASK = "tellback.run_job"
DELIVERY_BATCH = 500
CONNECT_SECONDS = 10
POOL_TIMEOUT = 5.0
"""How long to wait for a connection. A stopping worker does not wait longer than this for an unavailable server."""

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
"""A delivery blocks all later ones of its space, so it must not exist for a finished job or wait longer than its
job."""

log = logging.getLogger("tellback.jobs")

REAP_TASK = "tellback.reap"
REAP_SECONDS = 30
REAP_PRIORITY = 10
"""Higher than that of jobs, because a delivery to a dead worker blocks its space until it is reclaimed."""
MAX_DELIVERY_PAUSE = 1.0
SECOND_FETCH_SECONDS = 0.05
"""When a job ends, the next job of its space may run without a notification. A concurrent fetch may miss it, so fetch
again after this delay."""


async def prepare_schema(settings: QueueSettings) -> None:
    """Create the tables if they are missing, and migrate them to the installed procrastinate; one process at a time."""
    migrations = _list_migrations()
    connection = await psycopg.AsyncConnection.connect(
        settings.dsn, connect_timeout=CONNECT_SECONDS, application_name="tellback"
    )
    async with connection:
        await connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(settings.schema)))
        await connection.execute(
            "SELECT pg_advisory_xact_lock(hashtext('tellback.queue.schema'), hashtext(%s))", [settings.schema]
        )
        current = await _current_version(connection, settings.schema)
        missing = [name for name in migrations if current is None or name > current]
        if not missing:
            return
        try:
            whole = [SchemaManager.get_schema(), *DELIVERY_INDEXES]
            for statement in whole if current is None else [migrations[name].read_text() for name in missing]:
                await connection.execute(statement.encode())
            version = sql.Literal(max(migrations))
            await connection.execute(sql.SQL("COMMENT ON TABLE procrastinate_jobs IS {}").format(version))
            await _grant_access(connection, settings)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaVersionError(
                f"The tables of the job queue in {settings.display_url} are missing or outdated, and the database user"
                f" may not create them: {error}. Start a worker once as a user who owns the schema"
                f" {settings.schema!r}."
            ) from error


def _list_migrations() -> dict[str, Path]:
    """Return procrastinate's own migrations, in order."""
    return {path.name: path for path in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))}


async def _current_version(connection: psycopg.AsyncConnection, schema: str) -> str | None:
    """Return the last applied migration, from the table's comment; None if there is no table."""
    cursor = await connection.execute(
        "SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'procrastinate_jobs'",
        [schema],
    )
    row = await cursor.fetchone()
    return None if row is None else str(row[0] or "")


async def _grant_access(connection: psycopg.AsyncConnection, settings: QueueSettings) -> None:
    role = sql.Identifier(settings.role)
    for table in ("jobs", "events", "periodic_defers", "workers"):
        name = sql.Identifier(f"procrastinate_{table}")
        await connection.execute(sql.SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(name, role))
        await connection.execute(
            sql.SQL("GRANT USAGE ON SEQUENCE {} TO {}").format(sql.Identifier(f"procrastinate_{table}_id_seq"), role)
        )


def create_app(settings: QueueSettings, pool_size: int) -> procrastinate.App:
    """Create a procrastinate app for our database, schema and role."""

    async def configure(connection: psycopg.AsyncConnection) -> None:
        await connection.set_autocommit(True)
        if not settings.uses_prepared_statements:
            connection.prepare_threshold = None
        await connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(settings.schema)))
        # Deliveries lost in a server crash are created again, so commits need not wait for the disk.
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


def _build_delivery(id: str, space_id: str, at: float) -> jobs.Job:
    # The lock allows one running job per space; the queueing lock allows one waiting delivery per job.
    scheduled_at = datetime.fromtimestamp(at, UTC)
    return jobs.Job(
        queue=QUEUE_NAME,
        lock=space_id,
        queueing_lock=id,
        task_name=RUN_JOB_TASK,
        task_kwargs={"job_id": id},
        scheduled_at=scheduled_at if scheduled_at > datetime.now(UTC) else None,
    )


def _is_delivery_gone(error: BaseException) -> bool:
    """Whether the delivery has ended in the meantime."""
    return isinstance(error, exceptions.ConnectorException) and isinstance(
        error.__cause__, psycopg.errors.RaiseException
    )


class _RedeliverAt(Exception):
    """The job must be delivered again at a time."""

    def __init__(self, at: float) -> None:
        self.at = at
        super().__init__(f"again at {at:.3f}")


class _Redelivery(retry.BaseRetryStrategy):
    """Keeps a delivery, and its position in its space, until the job has ended."""

    def get_retry_decision(self, *, exception: BaseException, job: jobs.Job) -> retry.RetryDecision:
        at = time.time() + RETRY_SECONDS
        if isinstance(exception, _RedeliverAt):
            at = exception.at
        elif isinstance(exception, asyncio.CancelledError):  # the worker stops
            at = time.time()
        elif not isinstance(exception, StoreError):
            log.error("A delivery failed", exc_info=exception)
        return retry.RetryDecision(retry_at=datetime.fromtimestamp(at, UTC))


class _ProcrastinateWorker(worker.Worker):
    """procrastinate's worker, with a method that looks for jobs immediately."""

    def fetch_now(self) -> None:
        """Look for jobs now."""
        self._new_job_event.set()


class QueueService:
    """One worker on the queue, from its start to its end."""

    def __init__(
        self,
        settings: QueueSettings,
        store: Store,
        runner: JobRunner,
        options: WorkerOptions,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._store = store
        self._runner = runner
        self._options = options
        self._clock = clock
        self._app = create_app(settings, pool_size=options.concurrency + 2)
        self._delivery_lock = asyncio.Lock()
        self._stopped = False
        self._delivery_seconds = 0.0
        self._second_fetch: asyncio.TimerHandle | None = None
        self._register_tasks()
        self._worker: Any = _ProcrastinateWorker(
            self._app,
            queues=[QUEUE_NAME],
            name="tellback",
            concurrency=options.concurrency,
            fetch_job_polling_interval=options.poll,
            abort_job_polling_interval=3600.0,  # jobs are cancelled in the jobs table
            shutdown_graceful_timeout=options.grace,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=options.heartbeat / 2,
            stalled_worker_timeout=options.lease / 2,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Open the connections and prepare the tables; close them when the block ends."""
        await prepare_schema(self._settings)
        async with self._app.open_async():
            yield

    async def run(self) -> None:
        """Run jobs until `stop` is called or the connection is lost."""
        if not self._stopped:  # a starting worker would reset an earlier stop
            await self._worker.run()

    def stop(self) -> None:
        """Let running jobs finish within the grace time, and put the others back."""
        self._stopped = True
        self._worker.stop()

    async def deliver(self) -> None:
        """Ensure that every waiting job is in the queue. After a slow run, the next run starts later."""
        async with self._delivery_lock:
            await asyncio.sleep(min(MAX_DELIVERY_PAUSE, self._delivery_seconds * 4))
            started = time.monotonic()
            await self._deliver_all()
            self._delivery_seconds = time.monotonic() - started

    def _register_tasks(self) -> None:
        self._app.task(name=RUN_JOB_TASK, queue=QUEUE_NAME, retry=_Redelivery())(self._run_job)
        reap: Any = self._app.task(name=REAP_TASK, queue=QUEUE_NAME, queueing_lock=REAP_TASK, priority=REAP_PRIORITY)(
            self._reap
        )
        every = min(REAP_SECONDS, max(1, round(self._options.heartbeat * 1.5)))
        self._app.periodic(cron=f"* * * * * */{every}")(reap)

    async def _run_job(self, job_id: str) -> None:
        current: Any = asyncio.current_task()
        current.add_done_callback(self._on_delivery_done)
        job = await self._runner.claim(job_id)
        retry_at = await self._next_attempt(job_id) if job is None else await self._runner.run(job)
        if retry_at is not None:
            raise _RedeliverAt(retry_at)

    async def _next_attempt(self, job_id: str) -> float | None:
        """Return when to retry a job that could not be claimed; None if it has ended, or gets another delivery."""
        job = await self._store.jobs.get(None, job_id)
        if job is None or job.status.is_finished:
            return None
        now = time.time()
        if job.status is JobStatus.RUNNING:
            return now + self._options.heartbeat  # another worker runs it, but that worker may die
        due = job.due_at.timestamp()
        if due > now:
            # The clock of the database server is ahead. Without a pause, the job would be delivered again immediately.
            await asyncio.sleep(min(RETRY_SECONDS, due - now))
            return due
        await self._redeliver_last(job, now + RETRY_SECONDS)
        return None

    def _on_delivery_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not _is_delivery_gone(error):  # the delivery is missing if its user was erased
            log.warning("Could not end a delivery; restarting the worker", exc_info=error)
            self._worker.stop()
            return
        self._worker.fetch_now()
        if self._second_fetch is None:
            self._second_fetch = asyncio.get_running_loop().call_later(SECOND_FETCH_SECONDS, self._fetch_again)

    def _fetch_again(self) -> None:
        self._second_fetch = None
        self._worker.fetch_now()

    async def _reap(self, timestamp: int) -> None:
        released = await requeue_orphaned_jobs(self._store, self._clock)
        await self._reclaim(released)
        self._worker.fetch_now()

    async def _deliver_all(self) -> None:
        """Create a delivery for every waiting job without one, in the jobs' order."""
        count = DELIVERY_BATCH
        while count == DELIVERY_BATCH:
            async with self._exclusive_transaction() as connection:
                at = int(datetime.now(UTC).timestamp() * 1_000_000)
                values = {"at": at, "limit": DELIVERY_BATCH, "task": RUN_JOB_TASK}
                await connection.execute(_DELETE_STALE_DELIVERIES, values)
                await connection.execute(_EXPEDITE_DELIVERIES, values)
                rows = await (await connection.execute(_SELECT_UNDELIVERED, values)).fetchall()
                await self._defer(connection, [_build_delivery(id, space, due / 1_000_000) for id, space, due in rows])
            count = len(rows)

    async def _redeliver_last(self, job: Job, at: float) -> None:
        """Deliver a job again after all others of its space, because it was delivered before an earlier job."""
        await self._deliver_all()
        async with self._exclusive_transaction() as connection:
            select_waiting = "SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = %s AND status = 'todo'"
            cursor = await connection.execute(select_waiting, [job.id])
            if await cursor.fetchone() is None:
                await self._defer(connection, [_build_delivery(job.id, job.memory_space_id, at)])

    async def _defer(self, connection: Any, deliveries: list[jobs.Job]) -> None:
        if deliveries:
            await self._app.job_manager.batch_defer_jobs_async(deliveries, connection=connection)

    @asynccontextmanager
    async def _exclusive_transaction(self) -> AsyncIterator[Any]:
        """Open a transaction that sees the jobs of all users, while no other process creates deliveries."""
        connector: Any = self._app.connector
        async with connector.pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('tellback.platform', 'on', true)")
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('tellback.queue'), hashtext(current_schema()))"
            )
            yield connection

    async def _reclaim(self, released: Sequence[Job]) -> None:
        """Put back the deliveries of dead workers: those of released jobs, and those of workers without a heartbeat."""
        manager = self._app.job_manager
        silent_seconds = self._options.lease / 2
        stalled = list(await manager.get_stalled_jobs(queue=QUEUE_NAME, seconds_since_heartbeat=silent_seconds))
        for job in released:
            stalled += await manager.list_jobs_async(queueing_lock=job.id, status="doing")
        for delivery in {delivery.id: delivery for delivery in stalled}.values():
            await self._reclaim_delivery(delivery)

    async def _reclaim_delivery(self, delivery: jobs.Job) -> None:
        manager = self._app.job_manager
        try:
            if delivery.task_name == RUN_JOB_TASK:
                with contextlib.suppress(exceptions.UniqueViolation):  # the job already has another delivery
                    await manager.retry_job(delivery)
                    return
            await manager.finish_job(delivery, jobs.Status.FAILED, delete_job=True)
        except exceptions.ConnectorException as error:
            if not _is_delivery_gone(error):
                raise
