"""Graceful shutdown: running turns finish, then the server exits."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import httpx2

from tellback import Tellback
from tests.integration.server.server_process import SLOW_MODEL, ServerProcess, running_process


async def first_delta(lines: httpx2.Response) -> tuple[list[str], asyncio.Task[list[str]]]:
    """Read a stream up to its first text, and the rest in the background."""
    source = lines.aiter_lines()
    seen = []
    async with asyncio.timeout(30):
        async for line in source:
            seen.append(line)
            if line == "event: text":
                break

    async def read_rest() -> list[str]:
        return [line async for line in source]

    return seen, asyncio.create_task(read_rest())


async def test_a_streamed_turn_finishes_during_shutdown(tmp_path: Path) -> None:
    url = str(tmp_path / "tellback.db")
    async with running_process("--url", url, *SLOW_MODEL) as server, server.client(user="maya") as client:
        conversation = (await client.post("/ai-conversations", json={"namespace": "chat"})).json()["id"]
        turn = {"userText": "Say 10", "stream": True}
        async with client.stream("POST", f"/ai-conversations/{conversation}/run-turn", json=turn) as streaming:
            assert streaming.status_code == 200
            _, reading = await first_delta(streaming)
            server.signal(signal.SIGTERM)
            remaining = await asyncio.wait_for(reading, 30)
        assert await server.wait_for_exit() == 0
    assert "event: result" in remaining
    result = json.loads(remaining[remaining.index("event: result") + 1].removeprefix("data: "))
    assert result["text"].split() == [f"word{number}" for number in range(10)]
    async with Tellback(url, worker=False) as tb:
        stored = await tb.user("maya").conversations.messages(conversation)
    assert [message.role for message in stored] == ["user", "assistant"]


async def test_a_running_turn_finishes_during_shutdown_and_no_new_turn_starts(tmp_path: Path) -> None:
    async with (
        running_process("--url", str(tmp_path / "tellback.db"), *SLOW_MODEL) as server,
        server.client(user="maya") as client,
        server.client(user="otto") as other,
    ):
        assert (await other.get("/health/ready")).status_code == 200  # a connection that remains open
        running = asyncio.create_task(client.post("/ai-conversations/chat", json={"text": "Say 12"}))
        await _until_busy(server)
        server.signal(signal.SIGTERM)
        assert await _refused(other)
        assert (await running).status_code == 200
        assert await server.wait_for_exit() == 0


async def _refused(client: httpx2.AsyncClient) -> bool:
    """Whether new turns are rejected, by a response or a failed connection; one may precede the signal."""
    async with asyncio.timeout(20):
        while True:
            try:
                answer = await client.post("/ai-conversations/chat", json={"text": "Say 1"})
            except httpx2.TransportError:
                return True
            assert answer.status_code in (200, 503), answer.text
            await asyncio.sleep(0.05)


async def _until_busy(server: ServerProcess) -> None:
    """Wait until a turn has started and stored its user message."""
    async with server.client(user="maya") as client, asyncio.timeout(20):
        while True:
            found = (await client.get("/ai-conversations")).json()["items"]
            if found and (await client.get(f"/ai-conversations/{found[0]['id']}/messages")).json()["items"]:
                return
            await asyncio.sleep(0.05)


async def test_a_feed_ends_on_shutdown_so_that_its_client_reconnects(tmp_path: Path) -> None:
    async with running_process("--url", str(tmp_path / "tellback.db")) as server, server.client(user="maya") as client:
        async with client.stream("GET", "/ai-events") as feed:
            assert feed.status_code == 200
            server.signal(signal.SIGTERM)
            async with asyncio.timeout(15):
                await feed.aread()
        assert await server.wait_for_exit(15) == 0


async def test_a_turn_that_takes_too_long_is_cancelled_on_shutdown(tmp_path: Path) -> None:
    arguments = ("--url", str(tmp_path / "tellback.db"), "--shutdown-seconds", "1", *SLOW_MODEL)
    async with running_process(*arguments) as server, server.client(user="maya") as client:
        running = asyncio.create_task(client.post("/ai-conversations/chat", json={"text": "Say 200"}))
        await _until_busy(server)
        server.signal(signal.SIGTERM)
        started = time.monotonic()
        assert await server.wait_for_exit(30) == 0
        assert time.monotonic() - started < 25
        await asyncio.gather(running, return_exceptions=True)


async def test_a_second_signal_ends_the_server_immediately(tmp_path: Path) -> None:
    arguments = ("--url", str(tmp_path / "tellback.db"), "--shutdown-seconds", "60", *SLOW_MODEL)
    async with running_process(*arguments) as server, server.client(user="maya") as client:
        running = asyncio.create_task(client.post("/ai-conversations/chat", json={"text": "Say 200"}))
        await _until_busy(server)
        server.signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            while "Shutting down" not in server.output:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        server.signal(signal.SIGTERM)
        assert await server.wait_for_exit(10) == 128 + signal.SIGTERM
        await asyncio.gather(running, return_exceptions=True)
