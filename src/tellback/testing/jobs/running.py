"""Who runs a job, when, and how often."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tellback.jobs import Jobs, Schedule
from tellback.stores import Store, open_store
from tellback.testing.jobs.fixtures import MakeWorker, WorkerFixtures, reload_job, wait_until_finished
from tellback.testing.jobs.working import (
    QUICK_OPTIONS,
    ScriptedJobHandler,
    bind_space,
    close_new_conversation,
    finished_job_ids,
    make_spaces,
    queue_job,
)
from tellback.testing.stores.making import append_message, make_conversation
from tellback.types.jobs import JobStatus


class RunningContract(WorkerFixtures):
    """Every job is run by one worker, in its turn."""

    async def test_a_worker_sleeps_until_there_is_work(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        worker = make_worker(work)
        conversation = await make_conversation(store)
        await append_message(store, conversation.id, "Nobody asked to remember this.")
        await asyncio.sleep(QUICK_OPTIONS.poll * 2)
        assert not worker.is_awake
        [space] = await make_spaces(store, 1)
        await bind_space(store, space)
        id = await close_new_conversation(store)
        await jobs.drain(20)
        assert worker.is_awake
        assert [job.conversation_id for job in await jobs.list(JobStatus.DONE)] == [id]
        assert len(await finished_job_ids(store, space)) == 1

    async def test_work_that_was_there_before_is_done(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        await bind_space(store, space)
        await close_new_conversation(store)
        make_worker(work)
        await jobs.drain(20)
        assert len(await finished_job_ids(store, space)) == 1

    async def test_asking_twice_from_several_places_makes_one_job(
        self, store: Store, store_url: str, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        await bind_space(store, space)
        openings = [open_store(store_url) for _ in range(3)] if self.shared else []
        for opening in openings:
            await opening.open()
        workers = [
            make_worker(work),
            *(make_worker(ScriptedJobHandler(opening), store=opening) for opening in openings),
        ]
        ids = [await close_new_conversation(store) for _ in range(5)]
        await jobs.drain(20)
        for worker in workers:
            await worker.close()
        for opening in openings:
            await opening.close()
        assert sorted(job.conversation_id for job in await jobs.list(JobStatus.DONE)) == sorted(ids)
        assert len(await finished_job_ids(store, space)) == 5

    async def test_a_job_longer_than_its_lease_is_run_once(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        works = [ScriptedJobHandler(store), ScriptedJobHandler(store)]
        job = await queue_job(store, space, "slow", seconds=3)
        for work in works:
            make_worker(work, replace(QUICK_OPTIONS, lease=1.5, heartbeat=0.3))
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)
        assert [*works[0].started, *works[1].started] == [job.id]

    async def test_jobs_of_one_space_run_in_their_order_and_no_more_at_once_than_asked_for(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        running: list[str] = []
        crossed: list[str] = []
        most = 0

        class Counted(ScriptedJobHandler):
            async def _store_result(self, job: object) -> None:
                nonlocal most
                id = str(getattr(job, "memory_space_id", ""))
                crossed.extend({id} & {*running})
                running.append(id)
                most = max(most, len(running))
                await asyncio.sleep(0.02)
                await super()._store_result(job)  # type: ignore[arg-type]
                running.remove(id)

        places = await make_spaces(store, 5)
        made = [(space, await queue_job(store, space)) for _ in range(4) for space in places]
        make_worker(Counted(store), replace(QUICK_OPTIONS, concurrency=3))
        await wait_until_finished(jobs, *(job for _, job in made))
        for space in places:
            assert await finished_job_ids(store, space) == [job.id for of, job in made if of is space]
        assert crossed == []
        assert 1 < most <= 3

    async def test_a_worker_that_stops_puts_its_jobs_back_for_another(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        held, free = await make_spaces(store, 2)
        job, finishing = await queue_job(store, held, "held"), await queue_job(store, free, "slow", seconds=0.3)
        work = ScriptedJobHandler(store, holds=True)
        worker = make_worker(work, replace(QUICK_OPTIONS, grace=2.0))
        async with asyncio.timeout(20):
            await work.holding.wait()
            while finishing.id not in work.started:  # noqa: ASYNC110 - it says so nowhere else
                await asyncio.sleep(0.01)
        await worker.close()
        assert [each.status for each in (await reload_job(jobs, job), await reload_job(jobs, finishing))] == [
            JobStatus.QUEUED,
            JobStatus.DONE,
        ]
        assert (await reload_job(jobs, job)).attempts == 0
        make_worker(ScriptedJobHandler(store))
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)
        assert await finished_job_ids(store, held) == [job.id]

    async def test_a_worker_can_be_closed_before_it_began_and_started_again(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        worker = make_worker(work)
        await worker.close()
        await worker.close()
        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        worker.start()
        await wait_until_finished(jobs, job)
        await worker.close()
        assert work.started == [job.id]

    async def test_schedules_are_run_once_in_each_period_by_one_of_many(
        self, store: Store, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        ran: list[str] = []
        came = asyncio.Event()

        async def often() -> None:
            ran.append("often")
            look()
            raise ValueError("a schedule that fails comes again")

        async def rarely() -> None:
            ran.append("rarely")
            look()

        def look() -> None:
            if ran.count("often") > 1 and "rarely" in ran:
                came.set()

        schedules = [Schedule("often", 1.0, often), Schedule("rarely", 1_000.0, rarely)]
        workers = [make_worker(work, schedules=schedules) for _ in range(3)]
        async with asyncio.timeout(20):
            await came.wait()
        assert ran.count("rarely") == 1
        for worker in workers:
            worker.wake()  # what begins to work takes over the schedules, too
        came.clear()
        async with asyncio.timeout(20):
            await came.wait()
        assert ran.count("rarely") == 1

    async def test_waiting_for_jobs_that_nobody_runs_tells_what_is_left(self, store: Store, jobs: Jobs) -> None:
        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        with pytest.raises(TimeoutError, match=f"1 jobs due or running: {job.id} .queued.*is a worker running"):
            await jobs.drain(0.1)
        await bind_space(store, space)
        await close_new_conversation(store)
        with pytest.raises(TimeoutError, match="events from which jobs may follow"):
            await jobs.drain(0.1)

        async def endless() -> None:
            await asyncio.Event().wait()

        jobs.start(endless(), "count sheep")
        with pytest.raises(TimeoutError, match="count sheep"):
            await jobs.drain(0.1)
        jobs.start(asyncio.sleep(0), "nothing").cancel()
        for task in asyncio.all_tasks():
            if task.get_name() == "count sheep":
                task.cancel()
        await jobs.close()
