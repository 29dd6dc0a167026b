"""The worker contract: outcomes of a job, scheduling and leases, and workers that are killed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from tellback.errors import ExtractionError, InvalidArgumentError, NotFoundError
from tellback.jobs import Schedule
from tellback.stores import JobEnd, open_store
from tellback.testing.jobs.fixtures import (
    QUICK_OPTIONS,
    ScriptedJobHandler,
    WorkerEnvironment,
    WorkerFixtures,
    close_new_conversation,
    finished_job_ids,
    make_spaces,
    queue_job,
    reload_job,
    wait_until_finished,
    worker_processes,
)
from tellback.testing.stores.factories import append_message, make_binding, make_conversation
from tellback.types.jobs import Job, JobStatus


class OutcomeContract(WorkerFixtures):
    """Tests of the outcomes of a job."""

    async def test_a_job_finished_by_its_handler_is_done(self, env: WorkerEnvironment) -> None:
        job = await env.queue_job()
        env.make_worker(env.work)
        [ended] = await wait_until_finished(env.jobs, job)
        assert (ended.status, ended.attempts, ended.result, ended.error) == (JobStatus.DONE, 1, {"atoms": 1}, None)
        assert await finished_job_ids(env.store, env.space) == env.work.started == [job.id]

    async def test_the_handlers_return_value_becomes_the_result(self, env: WorkerEnvironment) -> None:
        async def handler(job: Job) -> JobEnd:
            return JobEnd(job.id, job.runs, {"seen": 3})

        ended = await env.run_job(handler)
        assert (ended.status, ended.result) == (JobStatus.DONE, {"seen": 3})

    async def test_a_handler_that_neither_finishes_nor_returns_fails_the_job(self, env: WorkerEnvironment) -> None:
        async def handler(job: Job) -> None:
            return None

        ended = await env.run_job(handler, replace(QUICK_OPTIONS, attempts=1))
        assert ended.status is JobStatus.FAILED
        assert "did not end its job" in (ended.error or "")

    async def test_a_failing_job_stops_after_its_attempts_and_others_continue(self, env: WorkerEnvironment) -> None:
        ill, well = await make_spaces(env.store, 2)
        poison = await queue_job(env.store, ill, "poison")
        others = [await queue_job(env.store, ill), await queue_job(env.store, well)]
        env.make_worker(env.work)
        failed, behind, beside = await wait_until_finished(env.jobs, poison, *others)
        assert (failed.status, failed.attempts, failed.error) == (
            JobStatus.FAILED,
            QUICK_OPTIONS.attempts,
            f"ValueError: no good, attempt {QUICK_OPTIONS.attempts}",
        )
        assert (behind.status, beside.status) == (JobStatus.DONE, JobStatus.DONE)
        assert env.work.started.count(poison.id) == QUICK_OPTIONS.attempts

    @pytest.mark.parametrize("error", [InvalidArgumentError("no"), NotFoundError("space", "ms_1")])
    async def test_permanent_errors_fail_the_job_immediately(self, env: WorkerEnvironment, error: Exception) -> None:
        async def handler(job: Job) -> None:
            raise error

        ended = await env.run_job(handler)
        assert (ended.status, ended.attempts) == (JobStatus.FAILED, 1)
        assert ended.error == f"{type(error).__name__}: {error}"

    async def test_unparseable_model_output_is_stored(self, env: WorkerEnvironment) -> None:
        async def handler(job: Job) -> None:
            raise ExtractionError("not JSON", "no\x00nsense")

        ended = await env.run_job(handler)
        assert (ended.status, ended.attempts, ended.raw_output) == (JobStatus.FAILED, 1, "nonsense")

    async def test_a_postponed_job_runs_again_without_counting_the_attempt(self, env: WorkerEnvironment) -> None:
        ended = await env.run_job(env.work, behaviour="postponed")
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)
        assert env.work.started == [ended.id] * 3

    async def test_a_job_that_takes_too_long_fails(self, env: WorkerEnvironment) -> None:
        ended = await env.run_job(
            env.work, replace(QUICK_OPTIONS, timeout=0.1, attempts=1), behaviour="slow", seconds=20
        )
        assert (ended.status, (ended.error or "")[:12]) == (JobStatus.FAILED, "TimeoutError")

    async def test_a_failed_job_can_be_retried_as_new(self, env: WorkerEnvironment) -> None:
        mended = False

        async def handler(job: Job) -> JobEnd:
            if not mended:
                raise InvalidArgumentError("no model")
            return JobEnd(job.id, job.runs)

        job = await env.queue_job()
        env.make_worker(handler)
        await wait_until_finished(env.jobs, job)
        mended = True
        again = await env.jobs.retry(job.id)
        assert (again.status, again.attempts, again.error) == (JobStatus.QUEUED, 0, None)
        [ended] = await wait_until_finished(env.jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)

    async def test_a_cancelled_job_is_not_run(self, env: WorkerEnvironment) -> None:
        unwanted, wanted = await env.queue_job(), await env.queue_job()
        assert (await env.jobs.cancel(unwanted.id)).status is JobStatus.CANCELLED
        env.make_worker(env.work)
        await env.jobs.drain(20)
        assert await finished_job_ids(env.store, env.space) == env.work.started == [wanted.id]

    async def test_cancelling_a_running_job_stops_it_without_changes(self, env: WorkerEnvironment) -> None:
        work, stopped = ScriptedJobHandler(env.store, holds=True), asyncio.Event()

        async def handler(job: Job) -> None:
            try:
                await work(job)
            except asyncio.CancelledError:
                stopped.set()
                raise

        job = await env.queue_job("held")
        env.make_worker(handler)
        await asyncio.wait_for(work.holding.wait(), 20)
        await env.jobs.cancel(job.id)
        await asyncio.wait_for(stopped.wait(), 20)
        await env.jobs.drain(20)
        assert (await reload_job(env.jobs, job)).status is JobStatus.CANCELLED
        assert await finished_job_ids(env.store, env.space) == []

    async def test_a_job_cancelled_before_its_retry_blocks_no_other(self, env: WorkerEnvironment) -> None:
        poison = await env.queue_job("poison")
        env.make_worker(env.work, replace(QUICK_OPTIONS, first_delay=500, longest_delay=900))
        await env.jobs.drain(20)
        await env.jobs.cancel(poison.id)
        [ended] = await wait_until_finished(env.jobs, await env.queue_job())
        assert ended.status is JobStatus.DONE
        await env.jobs.retry(poison.id)
        await env.jobs.drain(20)
        assert env.work.started.count(poison.id) == 2

    async def test_waiting_for_jobs_ignores_delayed_retries(self, env: WorkerEnvironment) -> None:
        job = await env.queue_job("poison")
        env.make_worker(env.work, replace(QUICK_OPTIONS, first_delay=500, longest_delay=900))
        await env.jobs.drain(20)
        waiting = await reload_job(env.jobs, job)
        assert (waiting.status, waiting.attempts) == (JobStatus.QUEUED, 1)
        assert waiting.error == "ValueError: no good, attempt 1"
        assert waiting.due_at.timestamp() > time.time() + 300


class RunningContract(WorkerFixtures):
    """Tests of running jobs: each by one worker, in order."""

    async def test_a_worker_sleeps_until_there_is_work(self, env: WorkerEnvironment) -> None:
        worker = env.make_worker(env.work)
        conversation = await make_conversation(env.store)
        await append_message(env.store, conversation.id, "No binding matches this.")
        await asyncio.sleep(QUICK_OPTIONS.poll * 2)
        assert not worker.is_awake
        await make_binding(env.store, env.space)
        id = await close_new_conversation(env.store)
        await env.jobs.drain(20)
        assert worker.is_awake
        assert [job.conversation_id for job in await env.jobs.list(JobStatus.DONE)] == [id]
        assert len(await finished_job_ids(env.store, env.space)) == 1

    async def test_existing_jobs_are_run_after_the_start(self, env: WorkerEnvironment) -> None:
        await make_binding(env.store, env.space)
        await close_new_conversation(env.store)
        env.make_worker(env.work)
        await env.jobs.drain(20)
        assert len(await finished_job_ids(env.store, env.space)) == 1

    async def test_concurrent_requests_for_one_extraction_create_one_job(self, env: WorkerEnvironment) -> None:
        await make_binding(env.store, env.space)
        openings = [open_store(env.store_url) for _ in range(3)] if self.shared else []
        for opening in openings:
            await opening.open()
        workers = [
            env.make_worker(env.work),
            *(env.make_worker(ScriptedJobHandler(opening), store=opening) for opening in openings),
        ]
        ids = [await close_new_conversation(env.store) for _ in range(5)]
        await env.jobs.drain(20)
        for worker in workers:
            await worker.close()
        for opening in openings:
            await opening.close()
        assert sorted(job.conversation_id for job in await env.jobs.list(JobStatus.DONE)) == sorted(ids)
        assert len(await finished_job_ids(env.store, env.space)) == 5

    async def test_a_job_longer_than_its_lease_is_run_once(self, env: WorkerEnvironment) -> None:
        works = [ScriptedJobHandler(env.store), ScriptedJobHandler(env.store)]
        job = await env.queue_job("slow", seconds=3)
        for work in works:
            env.make_worker(work, replace(QUICK_OPTIONS, lease=1.5, heartbeat=0.3))
        [ended] = await wait_until_finished(env.jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)
        assert [*works[0].started, *works[1].started] == [job.id]

    async def test_jobs_of_a_space_run_in_order_within_the_concurrency_limit(self, env: WorkerEnvironment) -> None:
        running: list[str] = []
        crossed: list[str] = []
        max_running = 0

        class Counted(ScriptedJobHandler):
            async def _store_result(self, job: object) -> None:
                nonlocal max_running
                id = str(getattr(job, "memory_space_id", ""))
                crossed.extend({id} & {*running})
                running.append(id)
                max_running = max(max_running, len(running))
                await asyncio.sleep(0.02)
                await super()._store_result(job)  # type: ignore[arg-type]
                running.remove(id)

        places = await make_spaces(env.store, 5)
        queued = [(space, await queue_job(env.store, space)) for _ in range(4) for space in places]
        env.make_worker(Counted(env.store), replace(QUICK_OPTIONS, concurrency=3))
        await wait_until_finished(env.jobs, *(job for _, job in queued))
        for space in places:
            assert await finished_job_ids(env.store, space) == [job.id for of, job in queued if of is space]
        assert crossed == []
        assert 1 < max_running <= 3

    async def test_a_stopping_worker_requeues_its_jobs(self, env: WorkerEnvironment) -> None:
        held, free = await make_spaces(env.store, 2)
        job, finishing = await queue_job(env.store, held, "held"), await queue_job(env.store, free, "slow", seconds=0.3)
        work = ScriptedJobHandler(env.store, holds=True)
        worker = env.make_worker(work, replace(QUICK_OPTIONS, grace=2.0))
        async with asyncio.timeout(20):
            await work.holding.wait()
            while finishing.id not in work.started:  # noqa: ASYNC110 - there is no event to wait for
                await asyncio.sleep(0.01)
        await worker.close()
        assert [each.status for each in (await reload_job(env.jobs, job), await reload_job(env.jobs, finishing))] == [
            JobStatus.QUEUED,
            JobStatus.DONE,
        ]
        assert (await reload_job(env.jobs, job)).attempts == 0
        env.make_worker(ScriptedJobHandler(env.store))
        [ended] = await wait_until_finished(env.jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)
        assert await finished_job_ids(env.store, held) == [job.id]

    async def test_a_worker_can_be_closed_before_it_ran_and_started_again(self, env: WorkerEnvironment) -> None:
        worker = env.make_worker(env.work)
        await worker.close()
        await worker.close()
        job = await env.queue_job()
        worker.start()
        await wait_until_finished(env.jobs, job)
        await worker.close()
        assert env.work.started == [job.id]

    async def test_one_of_many_workers_runs_a_schedule_in_each_period(self, env: WorkerEnvironment) -> None:
        ran: list[str] = []
        came = asyncio.Event()

        async def often() -> None:
            ran.append("often")
            look()
            raise ValueError("a failing schedule runs again")

        async def rarely() -> None:
            ran.append("rarely")
            look()

        def look() -> None:
            if ran.count("often") > 1 and "rarely" in ran:
                came.set()

        schedules = [Schedule("often", 1.0, often), Schedule("rarely", 1_000.0, rarely)]
        workers = [env.make_worker(env.work, schedules=schedules) for _ in range(3)]
        await asyncio.wait_for(came.wait(), 20)
        assert ran.count("rarely") == 1
        for worker in workers:
            worker.wake()  # a worker that starts to run jobs also runs the schedules
        came.clear()
        await asyncio.wait_for(came.wait(), 20)
        assert ran.count("rarely") == 1

    async def test_waiting_for_jobs_without_a_worker_reports_what_is_left(self, env: WorkerEnvironment) -> None:
        job = await env.queue_job()
        with pytest.raises(TimeoutError, match=f"1 jobs due or running: {job.id} .queued.*is a worker running"):
            await env.jobs.drain(0.1)
        await make_binding(env.store, env.space)
        await close_new_conversation(env.store)
        with pytest.raises(TimeoutError, match="events from which jobs may follow"):
            await env.jobs.drain(0.1)

        async def endless() -> None:
            await asyncio.Event().wait()

        env.jobs.start(endless(), "count sheep")
        with pytest.raises(TimeoutError, match="count sheep"):
            await env.jobs.drain(0.1)
        env.jobs.start(asyncio.sleep(0), "nothing").cancel()
        for task in asyncio.all_tasks():
            if task.get_name() == "count sheep":
                task.cancel()
        await env.jobs.close()


class CrashContract(WorkerFixtures):
    """Tests of jobs that survive their workers."""

    async def test_a_killed_workers_job_is_taken_over_and_done_once(self, env: WorkerEnvironment) -> None:
        self.skip_unless_shared()
        held, behind = await env.queue_job("held"), await env.queue_job()
        # A long lease: the job of a dead worker must be taken over before its lease expires.
        options = replace(QUICK_OPTIONS, lease=600.0)
        async with worker_processes(env.store_url, 1, options, holds=True) as [process]:
            assert await process.wait_for("holding") == held.id
            await process.kill()
        env.make_worker(env.work, options)
        found = await wait_until_finished(env.jobs, held, behind)
        assert [(job.status, job.attempts) for job in found] == [(JobStatus.DONE, 2), (JobStatus.DONE, 1)]
        assert await finished_job_ids(env.store, env.space) == [held.id, behind.id]

    async def test_a_job_that_kills_every_worker_fails(self, env: WorkerEnvironment) -> None:
        self.skip_unless_shared()
        options = replace(QUICK_OPTIONS, attempts=2)
        deadly, behind = await env.queue_job("deadly"), await env.queue_job()
        for _ in range(options.attempts):
            async with worker_processes(env.store_url, 1, options) as [process]:
                await process.wait_for_exit()
                assert process.values("begun") == [deadly.id]
        env.make_worker(env.work, options)
        failed, ended = await wait_until_finished(env.jobs, deadly, behind)
        assert failed.status is JobStatus.FAILED
        assert "stopped while it ran this job, 2 times" in (failed.error or "")
        assert ended.status is JobStatus.DONE
        assert env.work.started == [behind.id]

    async def test_ten_workers_run_many_jobs_once_and_in_order(self, env: WorkerEnvironment) -> None:
        self.skip_unless_shared()
        options = replace(QUICK_OPTIONS, concurrency=2, lease=20.0, heartbeat=4.0)
        places = await make_spaces(env.store, 12)
        queued = [(space, await queue_job(env.store, space)) for _ in range(6) for space in places]
        async with worker_processes(env.store_url, 5, options) as processes:
            await env.jobs.drain(40)
            for process in processes:
                await process.stop()
            started = [id for process in processes for id in process.values("begun")]
        assert sorted(started) == sorted(job.id for _, job in queued)
        for space in places:
            assert await finished_job_ids(env.store, space) == [job.id for of, job in queued if of is space]
