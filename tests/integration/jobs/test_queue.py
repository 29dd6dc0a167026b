"""The queue on PostgreSQL: the jobs table has the state, and jobs run whatever happens to the queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from procrastinate.schema import SchemaManager

from tellback.errors import SchemaVersionError
from tellback.jobs import Jobs, Worker, open_worker
from tellback.jobs.postgres import QueueService, prepare_schema
from tellback.jobs.runner import JobRunner
from tellback.stores import open_store
from tellback.stores.postgres import PostgresStore
from tellback.testing.jobs.fixtures import (
    KIND,
    QUICK_OPTIONS,
    ScriptedJobHandler,
    finished_job_ids,
    make_spaces,
    queue_job,
    wait_until_finished,
)
from tellback.types.ids import utc_now
from tellback.types.jobs import JobStatus
from tests.support.servers.postgres import PostgresServer

MIGRATIONS = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))


@asynccontextmanager
async def connect(url: str, schema: str = "tellback") -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    try:
        yield connection
    finally:
        await connection.close()


async def fetch_value(url: str, question: str, *values: Any) -> Any:
    async with connect(url) as connection:
        return await connection.fetchval(question, *values)


@asynccontextmanager
async def running_worker(store: PostgresStore, handler: Any, **options: Any) -> AsyncIterator[Worker]:
    worker = open_worker(store, {KIND: handler}, options=replace(QUICK_OPTIONS, **options))
    worker.start()
    try:
        yield worker
    finally:
        await worker.close()


async def deliveries(url: str) -> list[tuple[str, str]]:
    """Return the status and job id of each delivery in the queue."""
    async with connect(url) as connection:
        rows = await connection.fetch(
            "SELECT status::text, args FROM procrastinate_jobs WHERE task_name = 'tellback.run_job' ORDER BY id"
        )
        return [(row[0], row[1]) for row in rows]


async def test_the_queue_has_only_ids_and_is_empty_at_the_end(postgres_url: str, store: PostgresStore) -> None:
    [space] = await make_spaces(store, 1)
    handler = ScriptedJobHandler(store, holds=True)
    async with running_worker(store, handler):
        job, behind = await queue_job(store, space, "held"), await queue_job(store, space, "poison")
        async with asyncio.timeout(20):
            await handler.holding.wait()
            while len(found := await deliveries(postgres_url)) < 2:  # noqa: ASYNC110 - only the table knows
                await asyncio.sleep(0.05)
        assert found == [("doing", f'{{"job_id": "{job.id}"}}'), ("todo", f'{{"job_id": "{behind.id}"}}')]
        await Jobs(store).cancel(job.id)
        await wait_until_finished(Jobs(store), behind)
    assert await deliveries(postgres_url) == []
    assert await fetch_value(postgres_url, "SELECT count(*) FROM procrastinate_workers") == 0


async def test_a_worker_stopped_before_it_runs_does_not_run(store: PostgresStore) -> None:
    """A short-lived process closes the store while its worker is still starting."""
    service = QueueService(
        store.queue_settings(), store, JobRunner(store, {}, QUICK_OPTIONS, utc_now), QUICK_OPTIONS, utc_now
    )
    async with service.open():
        service.stop()
        async with asyncio.timeout(5):
            await service.run()


async def test_lost_deliveries_are_created_again(postgres_url: str, store: PostgresStore) -> None:
    first, second = await make_spaces(store, 2)
    await prepare_schema(store.queue_settings())
    handler = ScriptedJobHandler(store, holds=True)
    async with running_worker(store, handler):
        held_job = await queue_job(store, first, "held")
        async with asyncio.timeout(20):
            await handler.holding.wait()
        waiting = [await queue_job(store, first), await queue_job(store, second, "postponed")]
        await fetch_value(postgres_url, "DELETE FROM procrastinate_jobs")
        await Jobs(store).cancel(held_job.id)
        found = await wait_until_finished(Jobs(store), *waiting)
    assert [job.status for job in found] == [JobStatus.DONE, JobStatus.DONE]


async def test_duplicate_and_unordered_deliveries_do_no_harm(postgres_url: str, store: PostgresStore) -> None:
    [space] = await make_spaces(store, 1)
    jobs = [await queue_job(store, space) for _ in range(5)]
    await prepare_schema(store.queue_settings())
    async with connect(postgres_url) as connection:
        for job in reversed(jobs):
            for locked in (job.id, None):
                await connection.execute(
                    "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)"
                    " VALUES ('tellback', 'tellback.run_job', $1, $2, jsonb_build_object('job_id', $3::text))",
                    space.id,
                    locked,
                    job.id,
                )
    handler = ScriptedJobHandler(store)
    async with running_worker(store, handler):
        await wait_until_finished(Jobs(store), *jobs, seconds=40)
    assert await finished_job_ids(store, space) == handler.started == [job.id for job in jobs]


async def test_a_delivery_of_an_unknown_job_is_dropped(postgres_url: str, store: PostgresStore) -> None:
    [space] = await make_spaces(store, 1)
    await prepare_schema(store.queue_settings())
    await fetch_value(
        postgres_url,
        "INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args) VALUES"
        " ('tellback', 'tellback.run_job', $1, 'job_gone', '{\"job_id\": \"job_gone\"}')",
        space.id,
    )
    job = await queue_job(store, space)
    async with running_worker(store, ScriptedJobHandler(store)):
        [finished] = await wait_until_finished(Jobs(store), job)
    assert finished.status is JobStatus.DONE
    assert await deliveries(postgres_url) == []


async def test_many_workers_can_open_an_empty_database_concurrently(postgres_url: str) -> None:
    stores = [open_store(postgres_url) for _ in range(4)]
    for each in stores:
        await each.open()
    [space] = await make_spaces(stores[0], 1)
    jobs = [await queue_job(stores[0], space) for _ in range(4)]
    workers = [open_worker(each, {KIND: ScriptedJobHandler(each)}, options=QUICK_OPTIONS) for each in stores]
    for worker in workers:
        worker.start()
    await wait_until_finished(Jobs(stores[0]), *jobs)
    for worker in workers:
        await worker.close()
    assert await finished_job_ids(stores[0], space) == [job.id for job in jobs]
    for each in stores:
        await each.close()


async def test_tables_of_an_older_procrastinate_are_migrated(postgres_url: str, store: PostgresStore) -> None:
    older_migrations, last_migration = MIGRATIONS[:-2], MIGRATIONS[-1]
    async with connect(postgres_url) as connection:
        for step in older_migrations:
            await connection.execute(step.read_text())
        await connection.execute(f"COMMENT ON TABLE procrastinate_jobs IS '{older_migrations[-1].name}'")
    [space] = await make_spaces(store, 1)
    async with running_worker(store, ScriptedJobHandler(store)):
        job = await queue_job(store, space, "postponed")
        [finished] = await wait_until_finished(Jobs(store), job)
    assert finished.status is JobStatus.DONE
    assert (
        await fetch_value(postgres_url, "SELECT obj_description('procrastinate_jobs'::regclass)") == last_migration.name
    )


async def test_another_schema_has_a_separate_queue(postgres_url: str) -> None:
    for name in ("one", 'o"ther'):
        store = open_store(f"{postgres_url}?schema={name}")
        await store.open()
        assert isinstance(store, PostgresStore)
        [space] = await make_spaces(store, 1)
        async with running_worker(store, ScriptedJobHandler(store)):
            job = await queue_job(store, space)
            [finished] = await wait_until_finished(Jobs(store), job)
        assert finished.status is JobStatus.DONE
        await store.close()
    found = await fetch_value(postgres_url, "SELECT count(*) FROM pg_tables WHERE tablename = 'procrastinate_jobs'")
    assert found == 2


async def test_the_queue_uses_the_role_without_ownership(
    postgres_server: PostgresServer, postgres_url: str, store: PostgresStore
) -> None:
    user = f"plain_{postgres_url.rpartition('_')[2]}"
    postgres_server.psql(f"CREATE ROLE {user} LOGIN; GRANT tellback_app TO {user}")
    role_store = open_store(postgres_url.replace("postgres@", f"{user}@"))
    await role_store.open()
    assert isinstance(role_store, PostgresStore)
    try:
        with pytest.raises(SchemaVersionError, match="may not create them"):
            await prepare_schema(role_store.queue_settings())
        await prepare_schema(store.queue_settings())
        [space] = await make_spaces(role_store, 1)
        async with running_worker(role_store, ScriptedJobHandler(role_store)):
            job = await queue_job(role_store, space)
            [finished] = await wait_until_finished(Jobs(role_store), job)
        assert finished.status is JobStatus.DONE
    finally:
        await role_store.close()
        postgres_server.psql(f"DROP ROLE {user}")


async def test_a_worker_survives_a_server_restart() -> None:
    server = PostgresServer()
    server.start()
    try:
        store = open_store(server.url())
        await store.open()
        assert isinstance(store, PostgresStore)
        [space] = await make_spaces(store, 1)
        async with running_worker(store, ScriptedJobHandler(store)):
            before = await queue_job(store, space)
            await wait_until_finished(Jobs(store), before)
            slow = await queue_job(store, space, "slow", seconds=1.0)
            await asyncio.sleep(0.3)
            server.kill()
            await asyncio.sleep(0.5)
            server.start()
            after = await queue_job(store, space)
            found = await wait_until_finished(Jobs(store), slow, after, seconds=50)
        assert [job.status for job in found] == [JobStatus.DONE, JobStatus.DONE]
        assert await finished_job_ids(store, space) == [before.id, slow.id, after.id]
        await store.close()
    finally:
        server.remove()
