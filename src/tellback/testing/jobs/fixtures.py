"""What the tests of workers start from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tellback.jobs import Jobs, Worker, WorkerOptions, open_worker
from tellback.stores import Store, open_store
from tellback.testing.jobs.working import KIND, QUICK, Work
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
        made: list[Worker] = []

        def make(work: Any, options: WorkerOptions = QUICK, **more: Any) -> Worker:
            worker = open_worker(more.pop("store", store), {KIND: work}, options=options, **more)
            made.append(worker)
            worker.start()
            return worker

        yield make
        for worker in made:
            await worker.close()

    @pytest.fixture
    def jobs(self, store: Store) -> Jobs:
        """The handle, without a worker of its own."""
        return Jobs(store)

    @pytest.fixture
    def work(self, store: Store) -> Work:
        """A handler."""
        return Work(store)

    def need_processes(self) -> None:
        """Skip what one process cannot show."""
        if not self.shared:
            pytest.skip("this storage can be opened only once")


async def as_it_is(jobs: Jobs, job: Job) -> Job:
    """The job as it stands now."""
    found = await jobs.get(job.id)
    assert found is not None
    return found


async def until_over(jobs: Jobs, *made: Job, seconds: float = 30) -> list[Job]:
    """The jobs, once all are over."""
    async with asyncio.timeout(seconds):
        while True:
            found = [await as_it_is(jobs, job) for job in made]
            if all(job.status.is_over for job in found):
                return found
            await asyncio.sleep(0.02)
