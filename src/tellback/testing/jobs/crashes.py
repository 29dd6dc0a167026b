"""What happens when workers die: each of these starts real processes, and kills some."""

from __future__ import annotations

from dataclasses import replace

from tellback.jobs import Jobs
from tellback.stores import Store
from tellback.testing.jobs.fixtures import MakeWorker, WorkerFixtures, wait_until_finished
from tellback.testing.jobs.process import worker_processes
from tellback.testing.jobs.working import QUICK_OPTIONS, ScriptedJobHandler, finished_job_ids, make_spaces, queue_job
from tellback.types.jobs import JobStatus


class CrashContract(WorkerFixtures):
    """A job outlives its workers."""

    async def test_the_job_of_a_worker_that_was_killed_is_taken_over_and_done_once(
        self, store: Store, store_url: str, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        self.skip_unless_shared()
        [space] = await make_spaces(store, 1)
        held, behind = await queue_job(store, space, "held"), await queue_job(store, space)
        # A lease that nobody would wait for: whoever is certainly dead is not waited for either.
        options = replace(QUICK_OPTIONS, lease=600.0)
        async with worker_processes(store_url, 1, options, holds=True) as [process]:
            assert await process.wait_for("holding") == held.id
            await process.kill()
        make_worker(work, options)
        found = await wait_until_finished(jobs, held, behind)
        assert [(job.status, job.attempts) for job in found] == [(JobStatus.DONE, 2), (JobStatus.DONE, 1)]
        assert await finished_job_ids(store, space) == [held.id, behind.id]

    async def test_a_job_that_kills_every_worker_fails_in_the_end(
        self, store: Store, store_url: str, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        self.skip_unless_shared()
        options = replace(QUICK_OPTIONS, attempts=2)
        [space] = await make_spaces(store, 1)
        deadly, behind = await queue_job(store, space, "deadly"), await queue_job(store, space)
        for _ in range(options.attempts):
            async with worker_processes(store_url, 1, options) as [process]:
                await process.wait_for_exit()
                assert process.values("begun") == [deadly.id]
        make_worker(work, options)
        failed, ended = await wait_until_finished(jobs, deadly, behind)
        assert failed.status is JobStatus.FAILED
        assert "stopped while it ran this job, 2 times" in (failed.error or "")
        assert ended.status is JobStatus.DONE
        assert work.started == [behind.id]

    async def test_ten_workers_do_many_jobs_once_each_and_in_order(
        self, store: Store, store_url: str, jobs: Jobs
    ) -> None:
        self.skip_unless_shared()
        options = replace(QUICK_OPTIONS, concurrency=2, lease=20.0, heartbeat=4.0)
        places = await make_spaces(store, 12)
        made = [(space, await queue_job(store, space)) for _ in range(6) for space in places]
        async with worker_processes(store_url, 5, options) as processes:
            await jobs.drain(40)
            for process in processes:
                await process.stop()
            begun = [id for process in processes for id in process.values("begun")]
        assert sorted(begun) == sorted(job.id for _, job in made)
        for space in places:
            assert await finished_job_ids(store, space) == [job.id for of, job in made if of is space]
