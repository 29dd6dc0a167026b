"""Killed processes: acknowledged changes are stored, and nothing blocks the next process."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tellback import Tellback
from tests.integration.stores.assertions import (
    EventRecorder,
    acknowledged_outputs,
    assert_stored,
    assert_turn_runs_at_once,
    conversations_of,
    load_messages,
)
from tests.support.servers.postgres import PostgresServer
from tests.support.subprocesses import ChildProcess, Output


@asynccontextmanager
async def seeded() -> AsyncIterator[random.Random]:
    """Return a random generator. TELLBACK_SEED sets the seed that a failure reported."""
    seed = int(os.environ.get("TELLBACK_SEED") or time.time_ns() % 2**32)
    try:
        yield random.Random(seed)
    except BaseException as error:
        error.add_note(f"TELLBACK_SEED={seed}")
        raise


async def wait_for_random_moment(child: ChildProcess, rng: random.Random) -> None:
    """Wait for a random time: mostly while the child writes, sometimes while it opens the store."""
    if rng.random() < 0.8:
        await child.wait_for("id")
        await asyncio.sleep(rng.uniform(0, 0.4))
    else:
        await asyncio.sleep(rng.uniform(0, 0.3))


class CrashRounds:
    """Kills writers one after another on the same database, and checks the store after each kill."""

    def __init__(self, url: str, rng: random.Random) -> None:
        self.url = url
        self.rng = rng
        self.event_recorder = EventRecorder()
        self.conversation_ids: list[str] = []
        self.outputs: list[Output] = []

    async def run(self, count: int, *, kill_child: Callable[[int, ChildProcess], Awaitable[None]]) -> None:
        async with Tellback(self.url) as tb:
            self.conversation_ids = [(await conversations_of(tb).create("crash")).id]
        child = await ChildProcess.start("load")
        try:
            for number in range(count):
                await child.wait_for("ready")
                await child.send(
                    url=self.url, conversations=self.conversation_ids, seed=self.rng.random(), tag=f"round{number}"
                )
                # Start the next one while this one works; it waits for its command.
                dying, child = child, await ChildProcess.start("load")
                try:
                    await kill_child(number, dying)
                finally:
                    await dying.close()
                await self.check(dying, f"round {number}")
        finally:
            await child.close()
        await self.check_everything()

    async def check(self, dead: ChildProcess, description: str) -> None:
        try:
            self.outputs += dead.outputs
            created = [line["created"] for line in dead.outputs if "created" in line]
            async with Tellback(self.url) as tb:
                for id in (*self.conversation_ids, *created):
                    await assert_turn_runs_at_once(tb, id)
                await self.event_recorder.read_new(tb)
                for id in (*self.conversation_ids, *created):
                    messages = await load_messages(tb, id)
                    self.event_recorder.assert_covers(id, messages)
                    assert_stored(
                        messages, (line for line in acknowledged_outputs(dead.outputs) if line["conversation"] == id)
                    )
        except BaseException as error:
            error.add_note(f"{description}; the child's errors:\n{dead.errors()}")
            raise

    async def check_everything(self) -> None:
        """Check at the end that later rounds have lost nothing from earlier ones."""
        event_recorder = EventRecorder()
        async with Tellback(self.url) as tb:
            await event_recorder.read_new(tb)
            everything = {c.id: await load_messages(tb, c.id) for c in await conversations_of(tb).list()}
            for id, messages in everything.items():
                event_recorder.assert_covers(id, messages)
        messages = [message for found in everything.values() for message in found]
        assert_stored(messages, self.outputs)
        # A tool runs only after its call is stored: after a crash, the next turn knows that it may have run.
        called = {call.input["at"] for message in messages for call in message.tool_calls}
        assert called >= {line["looking"] for line in self.outputs if "looking" in line}
        assert len(acknowledged_outputs(self.outputs)) > 60  # the store was really under load


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_fifty_killed_writers_of_a_file_lose_no_acknowledged_change(tmp_path: Path) -> None:
    async with seeded() as rng:

        async def kill_child(number: int, child: ChildProcess) -> None:
            await wait_for_random_moment(child, rng)
            await child.kill()

        await CrashRounds(f"sqlite:///{tmp_path}/tellback.db", rng).run(50, kill_child=kill_child)


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_twenty_killed_writers_and_servers_lose_no_acknowledged_change(own_server: PostgresServer) -> None:
    async with seeded() as rng:

        async def kill_child(number: int, child: ChildProcess) -> None:
            await wait_for_random_moment(child, rng)
            if number % 5 == 4:
                await asyncio.to_thread(own_server.kill)
                await child.kill()
                await asyncio.to_thread(own_server.start)
            else:
                await child.kill()

        await CrashRounds(own_server.url(), rng).run(20, kill_child=kill_child)
