"""What the tests of workers start from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tellback.jobs import Jobs, Worker, WorkerOptions, open_worker
from tellback.stores import Store, open_store
from tellback.testing.jobs.working import KIND, QUICK_OPTIONS, ScriptedJobHandler
from tellback.types.jobs import Job

MakeWorker = Callable[..., Worker]


class WorkerFixtures:
    """The storage under test, and workers on it."""

    shared = True

    @pytest.fixture
    def store_url(self) -> str:
        """Where the storage under test is."""
        raise NotImplementedError("give your test class a fixture store_url")

    @pytest.fixture
    async def store(self, store_url: str) -> AsyncIterator[Store]:
        """The storage, opened."""
        store = open_store(store_url)
        await store.open()
        yield store
        await store.close()

    @pytest.fixture
    async def make_worker(self, store: Store) -> AsyncIterator[MakeWorker]:
        """Starts workers, which are closed after the test."""
        workers: list[Worker] = []

        def make(work: Any, options: WorkerOptions = QUICK_OPTIONS, **more: Any) -> Worker:
            worker = open_worker(more.pop("store", store), {KIND: work}, options=options, **more)
            workers.append(worker)
            worker.start()
            return worker

        yield make
        for worker in workers:
            await worker.close()

    @pytest.fixture
    def jobs(self, store: Store) -> Jobs:
        """The handle, without a worker of its own."""
        return Jobs(store)

    @pytest.fixture
    def work(self, store: Store) -> ScriptedJobHandler:
        """A handler."""
        return ScriptedJobHandler(store)

    def skip_unless_shared(self) -> None:
        """Skip what one process cannot show."""
        if not self.shared:
            pytest.skip("this storage can be opened only once")


async def reload_job(jobs: Jobs, job: Job) -> Job:
    """The job as it stands now."""
    found = await jobs.get(job.id)
    assert found is not None
    return found


async def wait_until_finished(jobs: Jobs, *pending: Job, seconds: float = 30) -> list[Job]:
    """The jobs, once all are over."""
    async with asyncio.timeout(seconds):
        while True:
            found = [await reload_job(jobs, job) for job in pending]
            if all(job.status.is_finished for job in found):
                return found
            await asyncio.sleep(0.02)
