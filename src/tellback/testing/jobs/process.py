"""A worker in a process of its own: `python -m tellback.testing.jobs.process`, told what to do by a line of JSON.

It prints a line of JSON for each thing that happens, and stops in good order when its input ends.
"""

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
from tellback.testing.jobs.working import KIND, Work


class WorkerProcess:
    """One such process; `said` is what it has printed so far."""

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._news = asyncio.Condition()
        self.said: list[dict[str, Any]] = []
        self._listening = asyncio.create_task(self._listen())

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

    async def until(self, key: str, seconds: float = 30) -> Any:
        """The first value it printed under a key."""
        async with asyncio.timeout(seconds), self._news:
            while True:
                for said in self.said:
                    if key in said:
                        return said[key]
                if self._listening.done():
                    raise AssertionError(f"the worker ended without saying {key!r}:\n{self._last_words()}")
                await self._news.wait()

    def all(self, key: str) -> list[Any]:
        """Every value it printed under a key."""
        return [said[key] for said in self.said if key in said]

    async def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)
        await self.ended()

    async def ended(self, seconds: float = 30) -> int:
        """Wait for its end; gives its exit code."""
        async with asyncio.timeout(seconds):
            await self._listening
            return await self._process.wait()

    async def stop(self) -> None:
        """Let it stop in good order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = await self.ended()
        assert code == 0, self._last_words()

    async def remove(self) -> None:
        """Leave nothing of it."""
        await self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._errors.close()

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while (line := await self._process.stdout.readline()).endswith(b"\n"):
            async with self._news:
                self.said.append(json.loads(line))
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()


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
            await process.until("ready")
        yield started
    finally:
        for process in started:
            await process.remove()


def _say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def _work(url: str, options: dict[str, Any], holds: bool) -> None:
    store = open_store(url)
    await store.open()
    worker = open_worker(store, {KIND: Work(store, holds=holds, tell=_say)}, options=WorkerOptions(**options))
    worker.start()
    _say(ready=os.getpid())
    await asyncio.to_thread(sys.stdin.read)
    await worker.close()
    await store.close()


if __name__ == "__main__":
    asyncio.run(_work(**json.loads(sys.stdin.readline())))
