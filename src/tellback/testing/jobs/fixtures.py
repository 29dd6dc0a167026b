"""Fixtures of the worker conformance tests: a scripted job handler, jobs to run, and workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import IO, Any

import pytest

from tellback.jobs import Jobs, PostponeJob, Worker, WorkerOptions, open_worker
from tellback.stores import AtomDraft, AtomFilter, JobEnd, Reconciliation, Store, open_store
from tellback.testing.stores.factories import MAYA, append_message, make_conversation, make_space, present
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import Job
from tellback.types.memory import AtomStatus, Category, CategoryKind, MemorySpace

KIND = "extract"
DONE = Category("done", CategoryKind.FACT)

QUICK_OPTIONS = WorkerOptions(
    lease=3.0, heartbeat=0.5, attempts=3, first_delay=0.05, longest_delay=0.2, poll=0.3, grace=0.2, timeout=30.0
)
"""Worker options for tests: seconds instead of minutes."""


class ScriptedJobHandler:
    """A job handler that appends the job id of each attempt to `started`. With `holds`, "held" jobs block.

    It stores its result as an atom in the job's space, in the same transaction as the end of the job.
    """

    def __init__(self, store: Store, *, holds: bool = False, report: Callable[..., None] | None = None) -> None:
        self._store = store
        self._holds = holds
        self._report = report or (lambda **_: None)
        self.started: list[str] = []
        self.holding = asyncio.Event()

    async def __call__(self, job: Job) -> JobEnd | None:
        """Run a job."""
        self.started.append(job.id)
        self._report(begun=job.id, attempt=job.attempts)
        conversation = present(await self._store.conversations.get(job.scope, job.conversation_id))
        await self._behave(job, conversation.namespace, conversation.metadata)
        await self._store_result(job)
        self._report(done=job.id)
        return None

    async def _behave(self, job: Job, behaviour: str, metadata: Any) -> None:
        if behaviour == "poison":
            raise ValueError(f"no good, attempt {job.attempts}")
        if behaviour == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "slow":
            await asyncio.sleep(metadata["seconds"])
        if behaviour == "postponed" and self.started.count(job.id) < 3:
            raise PostponeJob(0.05)
        if behaviour == "held" and self._holds:
            self._report(holding=job.id)
            self.holding.set()
            await asyncio.Event().wait()

    async def _store_result(self, job: Job) -> None:
        end = JobEnd(job.id, job.runs, {"atoms": 1})
        atom = AtomDraft(id=new_id("atom"), text=job.id, category=DONE, valid_from=utc_now())
        reconciliation = Reconciliation(changes=(atom,))
        stored = None
        while stored is None:
            memories = self._store.memories
            version = await memories.version(job.scope, job.memory_space_id)
            stored = await memories.reconcile(
                job.scope, job.memory_space_id, reconciliation, expected_version=version, end=end, now=utc_now()
            )


async def queue_job(store: Store, space: MemorySpace, behaviour: str = "quick", **metadata: Any) -> Job:
    """Queue a job with a given behaviour."""
    conversation = await make_conversation(store, space.scope, namespace=behaviour, metadata=metadata)
    await append_message(store, conversation.id, "Hello", space.scope)
    [job] = await store.jobs.plan(
        space.scope, conversation.id, version=None, space_id=space.id, window_length=1_000, now=utc_now()
    )
    return job


async def make_spaces(store: Store, count: int) -> list[MemorySpace]:
    """Create several spaces of one user."""
    return [await make_space(store, name=f"space {number}") for number in range(count)]


async def finished_job_ids(store: Store, space: MemorySpace) -> list[str]:
    """Return the ids of jobs that finished in a space, in the order of their results."""
    newest_first = await store.memories.atoms(space.scope, space.id, AtomFilter(AtomStatus.ACTIVE, utc_now()))
    return [atom.text for atom in reversed(newest_first)]


async def close_new_conversation(store: Store, behaviour: str = "quick") -> str:
    """Create and close a conversation, and return its id."""
    conversation = await make_conversation(store, MAYA, namespace=behaviour)
    await append_message(store, conversation.id, "Hello")
    await store.conversations.close(MAYA, conversation.id, now=utc_now())
    return conversation.id


class WorkerEnvironment:
    """A store with workers. `jobs` is a handle without its own worker, `work` a handler for jobs of `space`."""

    def __init__(self, store: Store, store_url: str, space: MemorySpace) -> None:
        self.store = store
        self.space = space
        self.store_url = store_url
        self.jobs = Jobs(store)
        self.work = ScriptedJobHandler(store)
        self.workers: list[Worker] = []

    def make_worker(self, work: Any, options: WorkerOptions = QUICK_OPTIONS, **more: Any) -> Worker:
        """Start a worker."""
        worker = open_worker(more.pop("store", self.store), {KIND: work}, options=options, **more)
        self.workers.append(worker)
        worker.start()
        return worker

    async def queue_job(self, behaviour: str = "quick", **metadata: Any) -> Job:
        """Queue a job of the space with a given behaviour."""
        return await queue_job(self.store, self.space, behaviour, **metadata)

    async def run_job(
        self, work: Any, options: WorkerOptions = QUICK_OPTIONS, *, behaviour: str = "quick", **metadata: Any
    ) -> Job:
        """Return a job after a worker has run it."""
        job = await self.queue_job(behaviour, **metadata)
        self.make_worker(work, options)
        [ended] = await wait_until_finished(self.jobs, job)
        return ended


class WorkerFixtures:
    """The storage under test, and workers on it."""

    shared = True

    @pytest.fixture
    def store_url(self) -> str:
        """The URL of the storage under test."""
        raise NotImplementedError("define the fixture store_url in your test class")

    @pytest.fixture
    async def store(self, store_url: str) -> AsyncIterator[Store]:
        """The open store."""
        store = open_store(store_url)
        await store.open()
        yield store
        await store.close()

    @pytest.fixture
    async def env(self, store: Store, store_url: str) -> AsyncIterator[WorkerEnvironment]:
        """The environment of a test; its workers are closed after the test."""
        environment = WorkerEnvironment(store, store_url, await make_space(store))
        yield environment
        for worker in environment.workers:
            await worker.close()

    def skip_unless_shared(self) -> None:
        """Skip tests that need several processes."""
        if not self.shared:
            pytest.skip("this storage can be opened only once")


async def reload_job(jobs: Jobs, job: Job) -> Job:
    """Return the job's current state."""
    return present(await jobs.get(job.id))


async def wait_until_finished(jobs: Jobs, *pending: Job, seconds: float = 30) -> list[Job]:
    """Wait until all jobs have finished, and return them."""
    async with asyncio.timeout(seconds):
        while True:
            found = [await reload_job(jobs, job) for job in pending]
            if all(job.status.is_finished for job in found):
                return found
            await asyncio.sleep(0.02)


class WorkerProcess:
    """A process with a worker. `events` are the lines that it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self.events: list[dict[str, Any]] = []
        self._reader = asyncio.create_task(self._read_events())

    @classmethod
    async def start(cls, url: str, options: WorkerOptions, *, holds: bool = False) -> WorkerProcess:
        """Start a worker process on a store."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tellback.testing.jobs.fixtures",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"url": url, "options": asdict(options), "holds": holds}).encode() + b"\n")
        await process.stdin.drain()
        return cls(process, errors)

    async def wait_for(self, key: str, seconds: float = 30) -> Any:
        """Wait for the first value printed under a key."""
        async with asyncio.timeout(seconds):
            while not self.values(key):
                assert not self._reader.done(), f"the worker ended without printing {key!r}:\n{self._read_stderr()}"
                await asyncio.sleep(0.01)
        return self.values(key)[0]

    def values(self, key: str) -> list[Any]:
        """Return all values printed under a key."""
        return [event[key] for event in self.events if key in event]

    async def kill(self) -> None:
        """Kill the process with SIGKILL, as in a power failure."""
        if self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)
        await self.wait_for_exit()

    async def wait_for_exit(self, seconds: float = 30) -> int:
        """Wait for the end of the process, and return its exit code."""
        async with asyncio.timeout(seconds):
            await self._reader
            return await self._process.wait()

    async def stop(self) -> None:
        """Stop the worker gracefully."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = await self.wait_for_exit()
        assert code == 0, self._read_stderr()

    async def close(self) -> None:
        """Kill the process if it runs, and close its files."""
        await self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._errors.close()

    def _read_stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    async def _read_events(self) -> None:
        assert self._process.stdout is not None
        while (line := await self._process.stdout.readline()).endswith(b"\n"):
            self.events.append(json.loads(line))


@asynccontextmanager
async def worker_processes(
    url: str, count: int, options: WorkerOptions, *, holds: bool = False
) -> AsyncIterator[list[WorkerProcess]]:
    """Run several worker processes, and kill them at the end of the block."""
    started: list[WorkerProcess] = []
    try:
        for _ in range(count):
            started.append(await WorkerProcess.start(url, options, holds=holds))  # noqa: PERF401 - all must be stopped
        for process in started:
            await process.wait_for("ready")
        yield started
    finally:
        for process in started:
            await process.close()


def _emit(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


async def _run_worker(url: str, options: dict[str, Any], holds: bool) -> None:
    store = open_store(url)
    await store.open()
    worker = open_worker(
        store, {KIND: ScriptedJobHandler(store, holds=holds, report=_emit)}, options=WorkerOptions(**options)
    )
    worker.start()
    _emit(ready=os.getpid())
    await asyncio.to_thread(sys.stdin.read)
    await worker.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(_run_worker(**json.loads(sys.stdin.readline())))
