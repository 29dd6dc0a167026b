"""The contract of the job log: claims, leases, order, outcomes and usage."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tellback.stores import JobEnd, Store
from tellback.testing.stores.factories import (
    DAY,
    MAYA,
    NOON,
    OTHER_SCOPES,
    assert_not_found,
    claim_available_job,
    claim_job,
    dispatch_all,
    make_binding,
    make_closed_conversation,
    make_space,
    present,
    read_all_events,
    read_event_types,
)
from tellback.types.access import Scope
from tellback.types.conversations import Conversation
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import ConversationScope, Job, JobStatus, UsageRecord, UsageTotal


async def make_jobs(store: Store, count: int = 1, scope: Scope = MAYA) -> list[Job]:
    """Create jobs of one space, in order."""
    about = [ConversationScope("*", scope.user_id)]
    await make_binding(store, await make_space(store, scope), scope=scope, scopes=about)
    for _ in range(count):
        await make_closed_conversation(store, scope)
    return await dispatch_all(store)


def make_usage(scope: Scope = MAYA, purpose: str = "extraction", **fields: Any) -> UsageRecord:
    """Build the usage record of a call."""
    return UsageRecord(new_id("use"), scope, purpose, **{"created_at": NOON, **fields})


class JobLogContract:
    """Tests of running jobs with `JobLog`."""

    @pytest.fixture
    async def job(self, store: Store) -> Job:
        """A queued job."""
        [job] = await make_jobs(store)
        return job

    async def test_a_claimed_job_is_running_until_finished(self, store: Store, job: Job) -> None:
        running = await claim_available_job(store)
        assert (running.id, running.status, running.attempts) == (job.id, JobStatus.RUNNING, 1)
        assert await claim_job(store) is None
        assert await store.jobs.running_instances() == ["worker"]
        done = await store.jobs.finish(JobEnd(job.id, 1, {"added": 2}), now=NOON)
        assert done == await store.jobs.get(MAYA, job.id)
        assert done is not None
        assert (done.status, done.result, done.finished_at) == (JobStatus.DONE, {"added": 2}, NOON)
        assert await claim_job(store, after=3600) is None
        assert await store.jobs.running_instances() == []
        [completion] = await read_all_events(store, "extraction.completed")
        assert (completion.subject_id, completion.data["added"], completion.scope) == (job.id, 2, MAYA)
        assert completion.data["conversation_id"] == job.conversation_id

    async def test_jobs_run_in_order_within_a_space_and_in_parallel_across_spaces(self, store: Store) -> None:
        first, second = await make_jobs(store, 2)
        [other] = await make_jobs(store, scope=OTHER_SCOPES[0])
        assert (await claim_available_job(store)).id == first.id
        assert (await claim_available_job(store)).id == other.id
        assert await claim_job(store) is None
        assert await claim_job(store, id=second.id) is None
        await store.jobs.finish(JobEnd(first.id, 1), now=NOON)
        assert (await claim_available_job(store, id=second.id)).id == second.id

    async def test_a_postponed_job_blocks_later_jobs_of_its_space(self, store: Store) -> None:
        first, second = await make_jobs(store, 2)
        await claim_available_job(store)
        await store.jobs.postpone(JobEnd(first.id, 1), until=time.time() + 1000, now=NOON)
        assert await claim_job(store) is None
        assert (await claim_available_job(store, after=1001)).id == first.id
        await store.jobs.fail(JobEnd(first.id, 2), "no", raw_output=None, retry_at=None, now=NOON)
        assert (await claim_available_job(store)).id == second.id

    async def test_concurrent_claims_get_different_jobs(self, store: Store, second: Store) -> None:
        spaces = [await make_space(store, name=str(n)) for n in range(4)]
        await make_binding(store, *spaces)
        for _ in range(3):
            await make_closed_conversation(store)
        await dispatch_all(store)
        for _ in range(3):
            got = await asyncio.gather(*(claim_job((store, second)[n % 2], str(n)) for n in range(20)))
            jobs = [job for job in got if job is not None]
            assert len({job.id for job in jobs}) == len(jobs)
            while len(jobs) < 4:  # a claim returns None while another claim has the job locked
                jobs.append(await claim_available_job(store))
            assert {job.memory_space_id for job in jobs} == {space.id for space in spaces}
            for job in jobs:
                await store.jobs.finish(JobEnd(job.id, job.runs), now=NOON)
        assert await claim_job(store) is None

    async def test_an_expired_lease_can_be_taken_over_and_the_old_run_cannot_finish(self, store: Store) -> None:
        [job] = await make_jobs(store)
        await claim_available_job(store, instance_id="slow", lease=10)
        assert await claim_job(store, after=9) is None
        taken = await claim_available_job(store, instance_id="quick", after=11)
        assert (taken.id, taken.attempts) == (job.id, 2)
        late = JobEnd(job.id, 1, usage=[make_usage(job_id=job.id, conversation_id=job.conversation_id)])
        assert not await store.jobs.extend(job.id, 1, until=time.time() + 99)
        assert await store.jobs.finish(late, now=NOON) is None
        assert await store.jobs.fail(JobEnd(job.id, 1), "late", raw_output=None, retry_at=None, now=NOON) is None
        assert await store.jobs.postpone(JobEnd(job.id, 1), until=0, now=NOON) is None
        assert await store.jobs.get(MAYA, job.id) == taken
        [used] = await self._usage(store, job_id=job.id)
        assert used == late.usage[0], "the usage of the lost run is stored"
        assert await store.jobs.finish(JobEnd(job.id, 2), now=NOON) is not None

    async def test_a_lease_can_be_extended_while_it_is_held(self, store: Store, job: Job) -> None:
        await claim_available_job(store, lease=10)
        assert await store.jobs.extend(job.id, 1, until=time.time() + 100)
        assert await claim_job(store, after=50) is None
        assert (await claim_available_job(store, after=101)).attempts == 2
        assert not await store.jobs.extend("job_unknown", 1, until=time.time() + 100)

    async def test_finishing_twice_has_one_effect_and_stores_usage_once(self, store: Store, job: Job) -> None:
        await claim_available_job(store)
        end = JobEnd(job.id, 1, {"added": 1}, [make_usage(job_id=job.id, conversation_id=job.conversation_id)])
        assert await store.jobs.finish(end, now=NOON) is not None
        assert await store.jobs.finish(end, now=NOON) is None
        assert await store.jobs.fail(end, "no", raw_output=None, retry_at=None, now=NOON) is None
        assert len(await self._usage(store, job_id=job.id)) == 1
        assert await store.jobs.finish(JobEnd("job_unknown", 1), now=NOON) is None

    async def test_a_failed_attempt_is_retried_or_fails_the_job(self, store: Store, job: Job) -> None:
        await claim_available_job(store)
        again = present(
            await store.jobs.fail(JobEnd(job.id, 1), "bad", raw_output="{", retry_at=time.time() + 30, now=NOON)
        )
        assert (again.status, again.error, again.raw_output, again.attempts) == (JobStatus.QUEUED, "bad", "{", 1)
        assert await claim_job(store) is None
        await claim_available_job(store, after=31)
        failed = present(await store.jobs.fail(JobEnd(job.id, 2), "worse", raw_output="[", retry_at=None, now=NOON))
        assert (failed.status, failed.error, failed.raw_output, failed.finished_at) == (
            JobStatus.FAILED,
            "worse",
            "[",
            NOON,
        )
        assert await claim_job(store, after=3600) is None
        [failure] = await read_all_events(store, "extraction.failed")
        assert (failure.subject_id, failure.data["error"]) == (job.id, "worse")

    async def test_a_cancelled_run_cannot_finish_the_next_run(self, store: Store, job: Job) -> None:
        cancelled = await claim_available_job(store)
        await store.jobs.cancel(MAYA, job.id, now=NOON)
        await store.jobs.retry(MAYA, job.id, now=NOON)
        running = await claim_available_job(store)
        assert (running.attempts, running.runs) == (1, 2)
        assert await store.jobs.finish(JobEnd(job.id, cancelled.runs), now=NOON) is None
        assert not await store.jobs.extend(job.id, cancelled.runs, until=time.time() + 9)
        assert await store.jobs.finish(JobEnd(job.id, running.runs), now=NOON) is not None

    async def test_postponing_does_not_count_as_an_attempt(self, store: Store, job: Job) -> None:
        for run in range(1, 4):
            assert (await claim_available_job(store, most=1)).runs == run
            postponed = present(await store.jobs.postpone(JobEnd(job.id, run), until=time.time(), now=NOON))
            assert (postponed.status, postponed.attempts) == (JobStatus.QUEUED, 0)

    async def test_a_job_that_crashes_its_workers_too_often_fails(self, store: Store) -> None:
        first, second = await make_jobs(store, 2)
        for attempt in (1, 2):
            assert (await claim_available_job(store, after=100 * attempt, lease=10, most=2)).attempts == attempt
        assert (await claim_available_job(store, after=300, most=2)).id == second.id
        failed = present(await store.jobs.get(MAYA, first.id))
        assert (failed.status, failed.error) == (JobStatus.FAILED, "The worker stopped while it ran this job, 2 times.")
        assert await claim_job(store, after=300, most=2, id=first.id) is None

    async def test_jobs_of_a_dead_instance_are_requeued(self, store: Store) -> None:
        [mine] = await make_jobs(store)
        [other] = await make_jobs(store, scope=OTHER_SCOPES[0])
        await claim_available_job(store, instance_id="gone", id=mine.id)
        await claim_available_job(store, instance_id="alive", id=other.id)
        assert sorted(await store.jobs.running_instances()) == ["alive", "gone"]
        [released] = await store.jobs.release("gone", now=NOON)
        assert (released.id, released.status) == (mine.id, JobStatus.QUEUED)
        assert await store.jobs.running_instances() == ["alive"]
        assert await store.jobs.release("gone", now=NOON) == []
        assert await store.jobs.finish(JobEnd(mine.id, 1), now=NOON) is None
        assert (await claim_available_job(store)).attempts == 2

    @pytest.mark.parametrize("scope", [MAYA, None])
    async def test_retrying_a_finished_job_resets_it(self, store: Store, scope: Scope | None, job: Job) -> None:
        assert await store.jobs.retry(scope, job.id, now=NOON) == job
        await claim_available_job(store)
        await store.jobs.fail(JobEnd(job.id, 1), "no", raw_output="{", retry_at=None, now=NOON)
        again = await store.jobs.retry(scope, job.id, now=NOON)
        assert (again.status, again.attempts, again.error, again.raw_output) == (JobStatus.QUEUED, 0, None, None)
        assert again.finished_at is None
        assert (await claim_available_job(store)).attempts == 1
        types = await read_event_types(store, job.id)
        assert types == ["extraction.queued", "extraction.failed", "extraction.queued"]

    @pytest.mark.parametrize("scope", [MAYA, None])
    async def test_a_cancelled_job_is_lost_for_its_running_worker(self, store: Store, scope: Scope | None) -> None:
        first, second = await make_jobs(store, 2)
        await claim_available_job(store)
        for job in (first, second):
            cancelled = await store.jobs.cancel(scope, job.id, now=NOON)
            assert (cancelled.status, cancelled.finished_at) == (JobStatus.CANCELLED, NOON)
            assert await store.jobs.cancel(scope, job.id, now=utc_now()) == cancelled
        assert await store.jobs.finish(JobEnd(first.id, 1), now=NOON) is None
        assert not await store.jobs.extend(first.id, 1, until=time.time() + 100)
        assert await claim_job(store, after=3600) is None

    async def test_jobs_of_other_users_are_unknown(self, store: Store, job: Job) -> None:
        for scope in (*OTHER_SCOPES, MAYA):
            id = "job_unknown" if scope == MAYA else job.id
            await assert_not_found(store.jobs.retry(scope, id, now=NOON), store.jobs.cancel(scope, id, now=NOON))
            assert await store.jobs.list_jobs(scope) == ([job] if scope == MAYA else [])

    async def test_jobs_are_listed_newest_first_in_pages(self, store: Store) -> None:
        jobs = (await make_jobs(store, 5))[::-1]
        await claim_available_job(store)
        listed = store.jobs.list_jobs
        assert [job.id for job in await listed(MAYA)] == [job.id for job in jobs]
        assert [job.id for job in await listed(None, limit=2, before=jobs[1].id)] == [job.id for job in jobs[2:4]]
        assert await listed(MAYA, status=JobStatus.QUEUED) == jobs[:4]
        assert await listed(MAYA, conversation_id=jobs[2].conversation_id) == [jobs[2]]
        assert await listed(None, conversation_id="conv_unknown") == []

    async def test_backlog_counts_due_and_running_jobs_and_returns_the_next_due_time(self, store: Store) -> None:
        assert await store.jobs.backlog(at=time.time()) == (0, None)
        [job] = await make_jobs(store)
        [other] = await make_jobs(store, scope=OTHER_SCOPES[0])
        assert await store.jobs.backlog(at=time.time()) == (2, None)
        await claim_available_job(store, id=job.id)
        assert await store.jobs.backlog(at=time.time()) == (2, None)
        await store.jobs.finish(JobEnd(job.id, 1), now=NOON)
        await claim_available_job(store, id=other.id)
        later = float(int(time.time()) + 500)
        await store.jobs.postpone(JobEnd(other.id, 1), until=later, now=NOON)
        assert await store.jobs.backlog(at=time.time()) == (0, later)
        assert await store.jobs.backlog(at=later) == (1, None)

    async def test_jobs_behind_a_postponed_job_are_not_due(self, store: Store) -> None:
        first, _ = await make_jobs(store, 2)
        await claim_available_job(store)
        assert await store.jobs.backlog(at=time.time()) == (1, None)
        later = float(int(time.time()) + 500)
        await store.jobs.postpone(JobEnd(first.id, 1), until=later, now=NOON)
        assert await store.jobs.backlog(at=time.time()) == (0, later)

    async def test_usage_is_listed_and_summed(self, store: Store, conversation: Conversation) -> None:
        records = [
            make_usage(model="m", provider="p", input_tokens=10, output_tokens=2, cost_usd=0.5, job_id="job_1"),
            make_usage(
                model="m", input_tokens=5, output_tokens=1, conversation_id=conversation.id, created_at=NOON + DAY
            ),
            make_usage(purpose="summary", cost_usd=0.25, created_at=NOON + 2 * DAY),
            make_usage(OTHER_SCOPES[0], model="m", input_tokens=7),
        ]
        await store.jobs.add_usage(records)
        own = records[2::-1]
        assert await self._usage(store) == own
        assert await self._usage(store, limit=1) == own[:1]
        assert await self._usage(store, limit=1, before=own[0].id) == own[1:2]
        assert await self._usage(store, scope=None, before=own[0].id) == records[1::-1]
        assert await self._usage(store, job_id="job_1") == records[:1]
        assert await self._usage(store, since=NOON + DAY, until=NOON + 2 * DAY) == [records[1]]
        assert await self._usage(store, scope=None) == records[::-1]
        summed = [
            UsageTotal(MAYA, "summary", None, 1, 0, 0, 0.25, 0),
            UsageTotal(MAYA, "extraction", "m", 2, 15, 3, 0.5, 1),
        ]
        assert await store.jobs.usage_totals(MAYA, since=None, until=None) == summed
        assert await store.jobs.usage_totals(None, since=None, until=None) == [
            UsageTotal(OTHER_SCOPES[0], "extraction", "m", 1, 7, 0, 0.0, 1),
            *summed,
        ]
        assert await store.jobs.usage_totals(MAYA, since=NOON + DAY, until=NOON + 2 * DAY) == [
            UsageTotal(MAYA, "extraction", "m", 1, 5, 1, 0.0, 1)
        ]
        assert await store.jobs.usage_totals(MAYA, since=NOON + 9 * DAY, until=None) == []

    async def test_concurrent_claims_of_a_schedule_succeed_once_per_period(self, store: Store, second: Store) -> None:
        take = [(opened, name) for opened in (store, second) for name in ("nightly", "hourly") for _ in range(5)]
        # 1,059.8 is a time that a process read before the last claim. At 900, a wrong clock was set back.
        for at, wanted in ((1_000.0, 1), (1_059.9, 0), (1_060.0, 1), (1_059.8, 0), (900.0, 1)):
            got = await asyncio.gather(*(each.jobs.claim_schedule(name, at=at, every=60) for each, name in take))
            for name in ("nightly", "hourly"):
                assert sum(taken for (_, named), taken in zip(take, got, strict=True) if named == name) == wanted

    async def _usage(self, store: Store, scope: Scope | None = MAYA, **options: Any) -> list[UsageRecord]:
        values = {"job_id": None, "since": None, "until": None, "limit": 100, **options}
        return await store.jobs.usage(scope, **values)
