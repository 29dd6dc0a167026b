"""Processes that a test starts, listens to, and ends by their id."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

from tests.support.fork_server import ForkedProcess, fork

Output = dict[str, Any]


class ChildProcess:
    """A program of `tests.support.subprocess_programs` in a process of its own.

    It is started early and begins when `go` tells it what to do, so that what a test measures is not Python's start.
    `said` is everything it has printed so far, one JSON object for each line.
    """

    def __init__(self, process: ForkedProcess, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._changed = asyncio.Condition()
        self._stderr = ""
        self.outputs: list[Output] = []
        self._reader = asyncio.create_task(self._read_outputs())

    @classmethod
    async def start(cls, program: str) -> ChildProcess:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        process = await fork(program, errors.fileno())
        return cls(process, errors)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, **job: Any) -> None:
        """Send it a line: the first is its job, later ones mean what the program makes of them."""
        await self._process.write(json.dumps(job).encode() + b"\n")

    async def wait_for(self, condition: Callable[[Output], bool] | str, seconds: float = 20) -> Output:
        """The first thing it said that is wanted: that has the key, or for which the function is true."""
        matches = (lambda output: condition in output) if isinstance(condition, str) else condition
        async with asyncio.timeout(seconds), self._changed:
            while True:
                for output in self.outputs:
                    if matches(output):
                        return output
                if self._reader.done():
                    raise AssertionError(f"the child ended without saying {condition!r}:\n{self.errors()}")
                await self._changed.wait()

    async def wait(self, seconds: float = 40) -> list[Output]:
        """Wait for its end, which must be a good one."""
        async with asyncio.timeout(seconds):
            await self._reader
            code = await self._process.wait()
        assert code == 0, f"the child ended with {code}:\n{self.errors()}"
        return self.outputs

    async def kill(self) -> list[Output]:
        """SIGKILL, and everything it had said by then."""
        self.signal(signal.SIGKILL)
        await self._reader
        await self._process.wait()
        return self.outputs

    def signal(self, number: int) -> None:
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    def errors(self) -> str:
        if not self._errors.closed:
            self._errors.seek(0)
            self._stderr = self._errors.read().decode(errors="replace")
        return self._stderr

    async def close(self) -> None:
        """Whatever state it is in, leave nothing of it."""
        await self.kill()
        self._process.close()
        self.errors()
        self._errors.close()

    async def _read_outputs(self) -> None:
        try:
            while (line := await self._process.stdout.readline()).endswith(b"\n"):  # the last may be cut off
                async with self._changed:
                    self.outputs.append(json.loads(line))
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()


@asynccontextmanager
async def child_processes(program: str, count: int) -> AsyncIterator[list[ChildProcess]]:
    """Several processes of one program, ready to go and ended with the block."""
    started: list[ChildProcess] = []
    try:
        for _ in range(count):
            started.append(await ChildProcess.start(program))  # noqa: PERF401 - those started must be ended if one fails
        for child in started:
            await child.wait_for("ready")
        yield started
    finally:
        for child in started:
            await child.close()


@asynccontextmanager
async def child_process(program: str, **job: Any) -> AsyncIterator[ChildProcess]:
    """One process at work."""
    async with child_processes(program, 1) as [started]:
        await started.send(**job)
        yield started


@contextmanager
def paused_process(pid: int) -> Iterator[None]:
    """Stop a process for the block. A signal takes effect after `kill` returns: wait until no thread runs any more."""
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 30
        while not _is_stopped(pid):
            assert time.monotonic() < deadline, f"process {pid} does not stop"
            time.sleep(0.005)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    """Whether every thread is in the state T; where there is no /proc, that cannot be seen."""
    try:
        statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except FileNotFoundError:  # a thread has just ended
        return False
    return all(status.rpartition(")")[2].split()[0] == "T" for status in statuses)
