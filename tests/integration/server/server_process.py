"""`tellback serve` in a separate process."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "tellback.cli", "serve", "--port", "0")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TELLBACK_")}
SLOW_MODEL = ("--agents", "tests.support.served_models:install")


class ServerProcess:
    """A running server, its URL and its output."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.stdout_lines: list[str] = []
        self.log: list[str] = []
        self.url = ""
        self._reading = [asyncio.create_task(self._read_log())]

    async def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        async with asyncio.timeout(50):
            while not self.url:
                line = (await self.process.stdout.readline()).decode()
                assert line, f"the server exited before it printed its address:\n{self.output}"
                self.stdout_lines.append(line)
                if found := re.search(r"http://\S+:\d+", line):
                    self.url = found.group()
        self._reading.append(asyncio.create_task(self._read_stdout()))

    @property
    def output(self) -> str:
        return "".join([*self.stdout_lines, *self.log])

    def client(self, secret: str | None = None, user: str | None = None) -> httpx2.AsyncClient:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        if user is not None:
            headers["X-Tellback-User"] = user
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30)

    def signal(self, number: int) -> None:
        if self.process.returncode is None:
            os.kill(self.process.pid, number)

    async def wait_for_exit(self, seconds: float = 40) -> int:
        async with asyncio.timeout(seconds):
            code = await self.process.wait()
            await asyncio.gather(*self._reading)
        return code

    async def stop(self) -> None:
        self.signal(signal.SIGTERM)
        try:
            await self.wait_for_exit()
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.process.wait()
            for task in self._reading:
                task.cancel()
            await asyncio.gather(*self._reading, return_exceptions=True)
            raise

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.log.append(line.decode())

    async def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.stdout_lines.append(line.decode())


@asynccontextmanager
async def running_process(*arguments: str, **environment: str) -> AsyncIterator[ServerProcess]:
    """Run a server in a `with` block."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**ENVIRONMENT, **environment},
        cwd=ROOT,
        limit=2**22,
    )
    found = ServerProcess(process)
    try:
        await found.wait_until_ready()
        yield found
    finally:
        await found.stop()


async def failed_start(*arguments: str, **environment: str) -> str:
    """Return the output of a server that exits with code 2."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**ENVIRONMENT, **environment},
        cwd=ROOT,
    )
    try:
        async with asyncio.timeout(50):
            out, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 2, error.decode()
    assert out == b""
    return error.decode()
