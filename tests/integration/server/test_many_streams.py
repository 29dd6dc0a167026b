"""Five hundred clients follow one server: none misses an event, and the server does not grow."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

CLIENTS = 500
USERS = 20
SECONDS = float(os.environ.get("RECOLLECT_STREAM_SECONDS", "20"))
PAUSE_SECONDS = 0.2
WARM_UP = 0.3
"""The share of the time after which the server has what it needs."""
GROWTH_BYTES = 30_000_000
WAIT_SECONDS = 60.0

SERVER = """
import socket, sys
import uvicorn
from recollect import Recollect
from recollect.server import ServerSettings, create_app

listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen(1024)
print(listening.getsockname()[1], flush=True)
app = create_app(Recollect(sys.argv[1], embedder=None, worker=False), ServerSettings(open=True))
uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])
"""


@asynccontextmanager
async def server(path: Path) -> AsyncIterator[tuple[int, int]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await asyncio.wait_for(process.stdout.readline(), WAIT_SECONDS))
        yield port, process.pid
    finally:
        process.kill()
        await process.wait()


def size_of(pid: int) -> int:
    """The bytes of memory that a process holds; 0 where that cannot be told."""
    found = Path(f"/proc/{pid}/statm")
    return int(found.read_text().split()[1]) * resource.getpagesize() if found.exists() else 0


class Client:
    """A raw connection that follows one user's events, and notes their positions."""

    def __init__(self, number: int) -> None:
        self.user = f"user-{number % USERS}"
        self.positions: list[int] = []
        self.is_ready = asyncio.Event()

    async def follow(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            head = f"GET /ai-events HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Recollect-User: {self.user}\r\n\r\n"
            writer.write(head.encode())
            async for line in reader:
                if line.startswith(b"event: ready"):
                    self.is_ready.set()
                elif self.is_ready.is_set() and (found := re.match(rb'data: \{"position":(\d+),"type"', line)):
                    self.positions.append(int(found[1]))
        finally:
            writer.transport.abort()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 4 * WAIT_SECONDS)
async def test_many_clients_miss_nothing_and_the_server_stays_as_small(tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < CLIENTS + 200:
        pytest.skip(f"this machine allows no {CLIENTS} connections: raise ulimit -n")
    clients = [Client(number) for number in range(CLIENTS)]
    expected: dict[str, list[int]] = {client.user: [] for client in clients}
    async with server(tmp_path / "kept.db") as (port, pid), asyncio.TaskGroup() as group:
        following = []
        for client in clients:
            following.append(group.create_task(client.follow(port)))
            if len(following) % 50 == 0:
                await asyncio.wait_for(client.is_ready.wait(), WAIT_SECONDS)
        for client in clients:
            await asyncio.wait_for(client.is_ready.wait(), WAIT_SECONDS)
        warm, last = await written(port, pid, expected)
        async with asyncio.timeout(WAIT_SECONDS):
            for client in clients:
                while len(client.positions) < len(expected[client.user]):
                    assert not any(task.done() for task in following), "a stream has ended"
                    await asyncio.sleep(0.05)
        for client in clients:
            assert client.positions == expected[client.user]
        for task in following:
            task.cancel()
    assert sum(map(len, expected.values())) > SECONDS
    assert last - warm < GROWTH_BYTES, f"the server grew from {warm} to {last} bytes"


async def written(port: int, pid: int, expected: dict[str, list[int]]) -> tuple[int, int]:
    """Write for a while, and note what was written; gives the server's size after the warm-up and at the end."""
    begun, warm, position = time.monotonic(), 0, 0
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_SECONDS) as client:
        while time.monotonic() - begun < SECONDS:
            for user, positions in expected.items():
                answer = await client.post(
                    "/ai-conversations", json={"namespace": "chat"}, headers={"X-Recollect-User": user}
                )
                assert answer.status_code == 201
                position += 1
                positions.append(position)
                await asyncio.sleep(PAUSE_SECONDS)
                if not warm and time.monotonic() - begun > SECONDS * WARM_UP:
                    warm = size_of(pid)
                if time.monotonic() - begun > SECONDS:
                    break
    return warm, size_of(pid)
