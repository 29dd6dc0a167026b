"""The procrastinate queue on PostgreSQL: its tables, a delivery for each of our jobs, and its worker. It is heavy, and
imported by `tellback.jobs.worker` alone, when a worker starts.

Our jobs table says what is to be done; the queue only brings jobs to a worker. A lost delivery is made again, and a
superfluous one finds its job claimed or finished."""

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
"""Without them, fetching one of a thousand deliveries takes a hundred times as long."""

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

log = logging.getLogger("tellback.jobs")

REAP_TASK = "tellback.reap"
REAP_SECONDS = 30
REAP_PRIORITY = 10
"""Before jobs: what waits for a dead worker would wait for ever."""
MAX_DELIVERY_PAUSE = 1.0
SECOND_FETCH_SECONDS = 0.05
"""After a job has ended its successor may run, which nobody announces; a look under way may have come too early."""


async def prepare_schema(settings: QueueSettings) -> None:
    """Make the tables if they are missing, and bring them to this procrastinate's version; one process at a time."""
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
                f"{settings.display_url} has no tables for the queue of jobs, or old ones, and the database user may"
                f" not make them: {error}. Open it once with a worker as a user who owns the schema"
                f" {settings.schema!r}."
            ) from error


def _list_migrations() -> dict[str, Path]:
    """procrastinate's own migrations, in their order."""
    return {path.name: path for path in sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))}


async def _current_version(connection: psycopg.AsyncConnection, schema: str) -> str | None:
    """The last step that was taken, which stands in the table's comment; None if there is no table."""
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


def _is_delivery_gone(error: BaseException) -> bool:
    """Whether the delivery has ended by itself meanwhile."""
    return isinstance(error, exceptions.ConnectorException) and isinstance(
        error.__cause__, psycopg.errors.RaiseException
    )


class _RedeliverAt(Exception):
    """The job is to be delivered again at a moment."""

    def __init__(self, at: float) -> None:
        self.at = at
        super().__init__(f"again at {at:.3f}")


class _Redelivery(retry.BaseRetryStrategy):
    """Keeps a delivery, and its place among those of its space, until the job is over."""

    def get_retry_decision(self, *, exception: BaseException, job: jobs.Job) -> retry.RetryDecision:
        at = time.time() + RETRY_SECONDS
        if isinstance(exception, _RedeliverAt):
            at = exception.at
        elif isinstance(exception, asyncio.CancelledError):  # the worker stops
            at = time.time()
        elif not isinstance(exception, StoreError):
            log.error("a delivery failed", exc_info=exception)
        return retry.RetryDecision(retry_at=datetime.fromtimestamp(at, UTC))


class _ProcrastinateWorker(worker.Worker):
    """procrastinate's worker, which can also be told to look for jobs at once."""

    def fetch_now(self) -> None:
        """Look for jobs now."""
        self._new_job_event.set()


class QueueService:
    """One worker on the queue, from its opening to its end."""

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
            abort_job_polling_interval=3600.0,  # jobs are cancelled in our table
            shutdown_graceful_timeout=options.grace,
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=options.heartbeat / 2,
            stalled_worker_timeout=options.lease / 2,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """With its tables there and its connections open."""
        await prepare_schema(self._settings)
        async with self._app.open_async():
            yield

    async def run(self) -> None:
        """Work until `stop`, or until the connection is lost."""
        if not self._stopped:  # a worker that begins forgets that it was told to stop before
            await self._worker.run()

    def stop(self) -> None:
        """Let running jobs come to an end, for a while, and put the others back."""
        self._stopped = True
        self._worker.stop()

    async def deliver(self) -> None:
        """See that every job that waits is in the queue; the longer that takes, the more seldom."""
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
        """When to try a job again that could not be had; None if it is over."""
        job = await self._store.jobs.get(None, job_id)
        if job is None or job.status.is_finished:
            return None
        now = time.time()
        if job.status is JobStatus.RUNNING:
            return now + self._options.heartbeat  # by another: it may die
        due = job.due_at.timestamp()
        if due > now:
            await asyncio.sleep(min(RETRY_SECONDS, due - now))  # the server's clock is ahead: it would come at once
            return due
        await self._redeliver_last(job, now + RETRY_SECONDS)
        return None

    def _on_delivery_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not _is_delivery_gone(error):  # one that is over was erased with its user
            log.warning("a delivery could not be ended; the worker starts again", exc_info=error)
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
        """Make a delivery for every job that waits and has none, in the jobs' order."""
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
        """Deliver a job anew behind all others of its space: the one at hand came before an earlier job's."""
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
        """A transaction that sees every user's jobs, while no other process makes deliveries."""
        connector: Any = self._app.connector
        async with connector.pool.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('tellback.platform', 'on', true)")
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('tellback.queue'), hashtext(current_schema()))"
            )
            yield connection

    async def _reclaim(self, released: Sequence[Job]) -> None:
        """Put back what was delivered to workers that are gone: those whose jobs were released, and silent ones."""
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
                with contextlib.suppress(exceptions.UniqueViolation):  # there is another one for the same job
                    await manager.retry_job(delivery)
                    return
            await manager.finish_job(delivery, jobs.Status.FAILED, delete_job=True)
        except exceptions.ConnectorException as error:
            if not _is_delivery_gone(error):
                raise
