"""Processes that a test starts, listens to, and ends by their id."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import IO, Any

from tests.support.nursery import ForkedProcess, fork

Said = dict[str, Any]


class Child:
    """A program of `tests.support.programs` in a process of its own.

    It is started early and begins when `go` tells it what to do, so that what a test measures is not Python's start.
    `said` is everything it has printed so far, one JSON object for each line.
    """

    def __init__(self, process: ForkedProcess, errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._news = asyncio.Condition()
        self._last_words = ""
        self.said: list[Said] = []
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, program: str) -> Child:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        process = await fork(program, errors.fileno())
        return cls(process, errors)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def go(self, **job: Any) -> None:
        """Send it a line: the first is its job, later ones mean what the program makes of them."""
        await self._process.write(json.dumps(job).encode() + b"\n")

    async def until(self, wanted: Callable[[Said], bool] | str, seconds: float = 20) -> Said:
        """The first thing it said that is wanted: that has the key, or for which the function is true."""
        matches = (lambda said: wanted in said) if isinstance(wanted, str) else wanted
        async with asyncio.timeout(seconds), self._news:
            while True:
                for said in self.said:
                    if matches(said):
                        return said
                if self._listening.done():
                    raise AssertionError(f"the child ended without saying {wanted!r}:\n{self.errors()}")
                await self._news.wait()

    async def finish(self, seconds: float = 40) -> list[Said]:
        """Wait for its end, which must be a good one."""
        async with asyncio.timeout(seconds):
            await self._listening
            code = await self._process.wait()
        assert code == 0, f"the child ended with {code}:\n{self.errors()}"
        return self.said

    async def kill(self) -> list[Said]:
        """SIGKILL, and everything it had said by then."""
        self.signal(signal.SIGKILL)
        await self._listening
        await self._process.wait()
        return self.said

    def signal(self, number: int) -> None:
        if self._process.returncode is None:
            os.kill(self._process.pid, number)

    def errors(self) -> str:
        if not self._errors.closed:
            self._errors.seek(0)
            self._last_words = self._errors.read().decode(errors="replace")
        return self._last_words

    async def end(self) -> None:
        """Whatever state it is in, leave nothing of it."""
        await self.kill()
        self._process.close()
        self.errors()
        self._errors.close()

    async def _listen(self) -> None:
        try:
            while (line := await self._process.stdout.readline()).endswith(b"\n"):  # the last may be cut off
                async with self._news:
                    self.said.append(json.loads(line))
                    self._news.notify_all()
        finally:
            async with self._news:
                self._news.notify_all()


@asynccontextmanager
async def children(program: str, count: int) -> AsyncIterator[list[Child]]:
    """Several processes of one program, ready to go and ended with the block."""
    started: list[Child] = []
    try:
        for _ in range(count):
            started.append(await Child.start(program))  # noqa: PERF401 - those started must be ended if one fails
        for child in started:
            await child.until("ready")
        yield started
    finally:
        for child in started:
            await child.end()


@asynccontextmanager
async def child(program: str, **job: Any) -> AsyncIterator[Child]:
    """One process at work."""
    async with children(program, 1) as [started]:
        await started.go(**job)
        yield started
