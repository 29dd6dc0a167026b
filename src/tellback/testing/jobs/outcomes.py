"""What becomes of a job, by what its handler does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from tellback.errors import ExtractionError, InvalidArgumentError, NotFoundError
from tellback.jobs import Jobs
from tellback.stores import JobEnd, Store
from tellback.testing.jobs.fixtures import MakeWorker, WorkerFixtures, reload_job, wait_until_finished
from tellback.testing.jobs.working import QUICK_OPTIONS, ScriptedJobHandler, finished_job_ids, make_spaces, queue_job
from tellback.types.jobs import Job, JobStatus


class OutcomeContract(WorkerFixtures):
    """Each outcome is recorded in the job."""

    async def test_a_job_that_was_ended_by_its_handler_is_done(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        make_worker(work)
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.attempts, ended.result, ended.error) == (JobStatus.DONE, 1, {"atoms": 1}, None)
        assert await finished_job_ids(store, space) == work.started == [job.id]

    async def test_what_a_handler_gives_back_becomes_the_result(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        async def handler(job: Job) -> JobEnd:
            return JobEnd(job.id, job.runs, {"seen": 3})

        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        make_worker(handler)
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.result) == (JobStatus.DONE, {"seen": 3})

    async def test_a_handler_that_ends_nothing_and_gives_nothing_has_failed(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        async def handler(job: Job) -> None:
            return None

        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        make_worker(handler, replace(QUICK_OPTIONS, attempts=1))
        [ended] = await wait_until_finished(jobs, job)
        assert ended.status is JobStatus.FAILED
        assert "did not end its job" in (ended.error or "")

    async def test_a_poison_job_fails_after_its_attempts_and_others_go_on(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        ill, well = await make_spaces(store, 2)
        poison = await queue_job(store, ill, "poison")
        others = [await queue_job(store, ill), await queue_job(store, well)]
        make_worker(work)
        failed, behind, beside = await wait_until_finished(jobs, poison, *others)
        assert (failed.status, failed.attempts, failed.error) == (
            JobStatus.FAILED,
            QUICK_OPTIONS.attempts,
            f"ValueError: no good, attempt {QUICK_OPTIONS.attempts}",
        )
        assert (behind.status, beside.status) == (JobStatus.DONE, JobStatus.DONE)
        assert work.started.count(poison.id) == QUICK_OPTIONS.attempts

    @pytest.mark.parametrize("error", [InvalidArgumentError("no"), NotFoundError("space", "ms_1")])
    async def test_what_no_attempt_can_mend_fails_at_once(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker, error: Exception
    ) -> None:
        async def handler(job: Job) -> None:
            raise error

        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        make_worker(handler)
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.FAILED, 1)
        assert ended.error == f"{type(error).__name__}: {error}"

    async def test_what_a_model_said_is_kept_when_it_cannot_be_read(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        async def handler(job: Job) -> None:
            raise ExtractionError("not JSON", "no\x00nsense")

        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        make_worker(handler)
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.attempts, ended.raw_output) == (JobStatus.FAILED, 1, "nonsense")

    async def test_a_postponed_job_comes_again_and_is_not_counted(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space, "postponed")
        make_worker(work)
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)
        assert work.started == [job.id] * 3

    async def test_a_job_that_takes_too_long_fails(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space, "slow", seconds=20)
        make_worker(work, replace(QUICK_OPTIONS, timeout=0.1, attempts=1))
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, (ended.error or "")[:12]) == (JobStatus.FAILED, "TimeoutError")

    async def test_a_failed_job_can_be_tried_again_as_new(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        mended = False

        async def handler(job: Job) -> JobEnd:
            if not mended:
                raise InvalidArgumentError("no model")
            return JobEnd(job.id, job.runs)

        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space)
        make_worker(handler)
        await wait_until_finished(jobs, job)
        mended = True
        again = await jobs.retry(job.id)
        assert (again.status, again.attempts, again.error) == (JobStatus.QUEUED, 0, None)
        [ended] = await wait_until_finished(jobs, job)
        assert (ended.status, ended.attempts) == (JobStatus.DONE, 1)

    async def test_a_cancelled_job_is_not_run(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        unwanted, wanted = await queue_job(store, space), await queue_job(store, space)
        assert (await jobs.cancel(unwanted.id)).status is JobStatus.CANCELLED
        make_worker(work)
        await jobs.drain(20)
        assert await finished_job_ids(store, space) == work.started == [wanted.id]

    async def test_a_job_cancelled_while_it_runs_is_stopped_and_changes_nothing(
        self, store: Store, jobs: Jobs, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        work, stopped = ScriptedJobHandler(store, holds=True), asyncio.Event()

        async def handler(job: Job) -> None:
            try:
                await work(job)
            except asyncio.CancelledError:
                stopped.set()
                raise

        job = await queue_job(store, space, "held")
        make_worker(handler)
        async with asyncio.timeout(20):
            await work.holding.wait()
        await jobs.cancel(job.id)
        async with asyncio.timeout(20):
            await stopped.wait()
        await jobs.drain(20)
        assert (await reload_job(jobs, job)).status is JobStatus.CANCELLED
        assert await finished_job_ids(store, space) == []

    async def test_what_is_cancelled_before_its_next_attempt_holds_nothing_up(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        poison = await queue_job(store, space, "poison")
        make_worker(work, replace(QUICK_OPTIONS, first_delay=500, longest_delay=900))
        await jobs.drain(20)
        await jobs.cancel(poison.id)
        [ended] = await wait_until_finished(jobs, await queue_job(store, space))
        assert ended.status is JobStatus.DONE
        await jobs.retry(poison.id)
        await jobs.drain(20)
        assert work.started.count(poison.id) == 2

    async def test_a_job_that_waits_for_its_next_attempt_is_not_waited_for(
        self, store: Store, jobs: Jobs, work: ScriptedJobHandler, make_worker: MakeWorker
    ) -> None:
        [space] = await make_spaces(store, 1)
        job = await queue_job(store, space, "poison")
        make_worker(work, replace(QUICK_OPTIONS, first_delay=500, longest_delay=900))
        await jobs.drain(20)
        waiting = await reload_job(jobs, job)
        assert (waiting.status, waiting.attempts) == (JobStatus.QUEUED, 1)
        assert waiting.error == "ValueError: no good, attempt 1"
        assert waiting.due_at.timestamp() > time.time() + 300
