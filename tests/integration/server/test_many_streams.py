"""500 clients follow `tellback serve` for half a minute: no client is dropped or misses an event, and memory does not
grow.

`TELLBACK_STREAM_SECONDS` changes the duration.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tellback import Tellback
from tests.integration.server.server_process import ServerProcess, running_process

CLIENTS = 500
USERS = 20
SECONDS = float(os.environ.get("TELLBACK_STREAM_SECONDS", "30"))
PAUSE_SECONDS = 0.2
WARM_UP = 0.3
"""The part of the duration that counts as warm-up."""
GROWTH_BYTES = 10_000_000
WAIT_SECONDS = 60.0


def resident_bytes(pid: int) -> int:
    """Return the memory of a process in bytes; 0 if unknown."""
    found = Path(f"/proc/{pid}/statm")
    return int(found.read_text().split()[1]) * resource.getpagesize() if found.exists() else 0


class Client:
    """A raw connection that follows one user's events and records their positions."""

    def __init__(self, number: int) -> None:
        self.user = f"user-{number % USERS}"
        self.positions: list[int] = []
        self.is_ready = asyncio.Event()

    async def follow(self, url: str, secret: str) -> None:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            headers = {"Host": "127.0.0.1", "Authorization": f"Bearer {secret}", "X-Tellback-User": self.user}
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"GET /ai-events HTTP/1.1\r\n{head}\r\n".encode())
            async for line in reader:
                if line.startswith(b"event: ready"):
                    self.is_ready.set()
                elif self.is_ready.is_set() and (found := re.match(rb'data: \{"position":(\d+),"type"', line)):
                    self.positions.append(int(found[1]))
        finally:
            writer.transport.abort()


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 4 * WAIT_SECONDS)
async def test_many_clients_miss_no_event_and_memory_does_not_grow(tmp_path: Path) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < CLIENTS + 200:
        pytest.skip(f"this machine allows no {CLIENTS} connections: raise ulimit -n")
    clients = [Client(number) for number in range(CLIENTS)]
    expected: dict[str, list[int]] = {client.user: [] for client in clients}
    path = str(tmp_path / "kept.db")
    async with Tellback(path, worker=False) as tb:
        secret = (await tb.keys.create("app")).secret
        started = await tb.events.latest()
    unlimited = ("--concurrency", "0", "--rate-limit", "0")
    async with running_process("--url", path, *unlimited) as server, asyncio.TaskGroup() as group:
        follow_tasks = []
        for client in clients:
            follow_tasks.append(group.create_task(client.follow(server.url, secret)))
            if len(follow_tasks) % 50 == 0:
                await asyncio.wait_for(client.is_ready.wait(), WAIT_SECONDS)
        for client in clients:
            await asyncio.wait_for(client.is_ready.wait(), WAIT_SECONDS)
        warm, last = await write_and_measure(server, secret, started, expected)
        async with asyncio.timeout(WAIT_SECONDS):
            for client in clients:
                while len(client.positions) < len(expected[client.user]):
                    assert not any(task.done() for task in follow_tasks), "a stream has ended"
                    await asyncio.sleep(0.05)
        for client in clients:
            assert client.positions == expected[client.user]
        assert not any(task.done() for task in follow_tasks), "a stream has ended"
        for task in follow_tasks:
            task.cancel()
    assert sum(map(len, expected.values())) > SECONDS
    report = f"{warm / 1e6:.1f} MB after the warm-up and {last / 1e6:.1f} MB at the end"
    print(f"{CLIENTS} clients for {SECONDS:g} seconds: {report}")
    assert last - warm < GROWTH_BYTES, f"the server grew: {report}"


async def write_and_measure(
    server: ServerProcess, secret: str, position: int, expected: dict[str, list[int]]
) -> tuple[int, int]:
    """Write events for a while and record them; return the server's memory after the warm-up and at the end."""
    started, warm, pid = time.monotonic(), 0, server.process.pid
    async with server.client(secret) as client:
        while time.monotonic() - started < SECONDS:
            for user, positions in expected.items():
                answer = await client.post(
                    "/ai-conversations", json={"namespace": "chat"}, headers={"X-Tellback-User": user}
                )
                assert answer.status_code == 201
                position += 1
                positions.append(position)
                await asyncio.sleep(PAUSE_SECONDS)
                if not warm and time.monotonic() - started > SECONDS * WARM_UP:
                    warm = resident_bytes(pid)
                if time.monotonic() - started > SECONDS:
                    break
    return warm, resident_bytes(pid)
