"""Child processes of a test: started, read from, and ended by their id."""

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
    """A program of `tests.support.subprocess_programs` in a separate process.

    It starts early and begins its work when `send` passes the job, so that a test does not measure the start of Python.
    `outputs` contains everything printed so far, one JSON object for each line.
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
        """Send a line: the first is the job, and the program interprets later ones."""
        await self._process.write(json.dumps(job).encode() + b"\n")

    async def wait_for(self, condition: Callable[[Output], bool] | str, seconds: float = 20) -> Output:
        """Wait for the first output that has the key, or for which the function returns true."""
        matches = (lambda output: condition in output) if isinstance(condition, str) else condition
        async with asyncio.timeout(seconds), self._changed:
            while True:
                for output in self.outputs:
                    if matches(output):
                        return output
                if self._reader.done():
                    raise AssertionError(f"the child ended without printing {condition!r}:\n{self.errors()}")
                await self._changed.wait()

    async def wait(self, seconds: float = 40) -> list[Output]:
        """Wait until the process exits with code 0; return its outputs."""
        async with asyncio.timeout(seconds):
            await self._reader
            code = await self._process.wait()
        assert code == 0, f"the child ended with {code}:\n{self.errors()}"
        return self.outputs

    async def kill(self) -> list[Output]:
        """Send SIGKILL; return everything printed before."""
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
        """Kill the process and release its resources, in any state."""
        await self.kill()
        self._process.close()
        self.errors()
        self._errors.close()

    async def _read_outputs(self) -> None:
        try:
            while (line := await self._process.stdout.readline()).endswith(b"\n"):  # the last line may be incomplete
                async with self._changed:
                    self.outputs.append(json.loads(line))
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()


@asynccontextmanager
async def child_processes(program: str, count: int) -> AsyncIterator[list[ChildProcess]]:
    """Yield several waiting processes of one program, and end them with the block."""
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
    """Yield one process that has received its job."""
    async with child_processes(program, 1) as [started]:
        await started.send(**job)
        yield started


@contextmanager
def paused_process(pid: int) -> Iterator[None]:
    """Pause a process during the block. Signals are delivered after `kill` returns, so wait until all threads stop."""
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
    """Return whether every thread is in state T; always true without /proc."""
    try:
        statuses = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except FileNotFoundError:  # a thread has just ended
        return False
    return all(status.rpartition(")")[2].split()[0] == "T" for status in statuses)
