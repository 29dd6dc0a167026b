"""Two worker processes run two thousand jobs, and one of the workers is killed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tellback.jobs import Jobs
from tellback.stores import Store
from tellback.testing.jobs.fixtures import QUICK_OPTIONS, finished_job_ids, worker_processes
from tellback.testing.stores.factories import MAYA, make_conversation, make_draft, make_space, make_turn
from tellback.types.ids import utc_now
from tellback.types.jobs import Job, JobStatus
from tellback.types.memory import MemorySpace

SPACES, EACH = 100, 20


async def fill_store(store: Store, number: int) -> tuple[MemorySpace, list[Job]]:
    """Create a space with a job for each turn of a conversation."""
    space = await make_space(store, name=f"space {number}")
    conversation = await make_conversation(store, namespace="quick")
    turns = [turn for _ in range(EACH) for turn in make_turn(make_draft("One more"))]
    await store.conversations.append(MAYA, conversation.id, turns, now=utc_now())
    jobs = await store.jobs.plan(MAYA, conversation.id, version=None, space_id=space.id, window_length=1, now=utc_now())
    return space, jobs


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_two_thousand_jobs_run_once_each_although_a_worker_is_killed(postgres_url: str, store: Store) -> None:
    created = await asyncio.gather(*(fill_store(store, number) for number in range(SPACES)))
    assert sum(len(jobs) for _, jobs in created) == SPACES * EACH == 2_000
    options = replace(QUICK_OPTIONS, concurrency=4, lease=60.0, heartbeat=2.0, poll=1.0)
    async with worker_processes(postgres_url, 2, options) as [killed_worker, surviving_worker]:
        async with asyncio.timeout(60):
            while len(killed_worker.values("done")) < 400:  # noqa: ASYNC110 - it says so on its standard output
                await asyncio.sleep(0.01)
        await killed_worker.kill()
        await Jobs(store).drain(90)
        await surviving_worker.stop()
    assert len(await store.jobs.list_jobs(None, status=JobStatus.DONE)) == 2_000
    for space, jobs in created:
        assert await finished_job_ids(store, space) == [job.id for job in jobs]
    started = [*killed_worker.values("begun"), *surviving_worker.values("begun")]
    repeated_ids = {id for id in started if started.count(id) > 1}
    assert set(started) == {job.id for _, jobs in created for job in jobs}
    assert len(repeated_ids) <= options.concurrency, "more jobs ran twice than the killed worker was running"
