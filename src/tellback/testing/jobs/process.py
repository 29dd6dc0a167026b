"""A worker in a process of its own: `python -m tellback.testing.jobs.process`, configured by a line of JSON on stdin.

It prints a line of JSON for each event, and shuts down in order when its input ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import IO, Any

from tellback.jobs import WorkerOptions, open_worker
from tellback.stores import open_store
from tellback.testing.jobs.fixtures import KIND, ScriptedJobHandler


class WorkerProcess:
    """One such process; `said` is what it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._changed = asyncio.Condition()
        self.events: list[dict[str, Any]] = []
        self._reader = asyncio.create_task(self._read_events())

    @classmethod
    async def start(cls, url: str, options: WorkerOptions, *, holds: bool = False) -> WorkerProcess:
        """Start one on a store."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tellback.testing.jobs.process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"url": url, "options": asdict(options), "holds": holds}).encode() + b"\n")
        await process.stdin.drain()
        return cls(process, errors)

    async def wait_for(self, key: str, seconds: float = 30) -> Any:
        """The first value it printed under a key."""
        async with asyncio.timeout(seconds), self._changed:
            while True:
                for event in self.events:
                    if key in event:
                        return event[key]
                if self._reader.done():
                    raise AssertionError(f"the worker ended without saying {key!r}:\n{self._read_stderr()}")
                await self._changed.wait()

    def values(self, key: str) -> list[Any]:
        """Every value it printed under a key."""
        return [event[key] for event in self.events if key in event]

    async def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)
        await self.wait_for_exit()

    async def wait_for_exit(self, seconds: float = 30) -> int:
        """Wait for its end; gives its exit code."""
        async with asyncio.timeout(seconds):
            await self._reader
            return await self._process.wait()

    async def stop(self) -> None:
        """Let it stop in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = await self.wait_for_exit()
        assert code == 0, self._read_stderr()

    async def close(self) -> None:
        """Leave nothing of it."""
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
            async with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
        async with self._changed:
            self._changed.notify_all()


@asynccontextmanager
async def worker_processes(
    url: str, count: int, options: WorkerOptions, *, holds: bool = False
) -> AsyncIterator[list[WorkerProcess]]:
    """Several workers at work, ended with the block."""
    started: list[WorkerProcess] = []
    try:
        for _ in range(count):
            started.append(await WorkerProcess.start(url, options, holds=holds))  # noqa: PERF401 - all must be ended
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
