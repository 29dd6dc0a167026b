"""Programs for child processes (`tests.support.fork_server` forks them); the job is a line of JSON on standard input.

They print one line of JSON for each write that the store has acknowledged, after the call has returned.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tellback import Tellback
from tellback.conversations import Conversations
from tellback.errors import StoreError, TellbackError
from tellback.stores import catalogue
from tellback.stores.catalogue import migrations, statements
from tellback.stores.sqlite import SqliteStore
from tellback.testing import FunctionModel, Step, calls, says
from tellback.types import ToolCall
from tellback.types.conversations import StoredMessage

Job = dict[str, Any]
USER = "maya"


def emit(**output: Any) -> None:
    print(json.dumps(output), flush=True)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def acknowledge(message: StoredMessage, **kwargs: Any) -> None:
    emit(
        id=message.id,
        seq=message.seq,
        conversation=message.conversation_id,
        role=message.role,
        digest=digest(message.text),
        **kwargs,
    )


async def read_line() -> Job:
    """Read the next line of standard input without blocking the event loop."""
    return json.loads(await asyncio.to_thread(sys.stdin.readline)) or {}


def tool_model(tag: str, *, delay: float = 0) -> FunctionModel:
    """Calls `look` once, then answers."""
    numbers = itertools.count(1)

    def answer(request: Any) -> Step:
        if request.messages[-1].role == "tool":
            return says("I have looked.", delay=delay)
        id = f"{tag}-call-{next(numbers)}"
        return calls(ToolCall(id, "look", {"at": id}), delay=delay)

    return FunctionModel(answer)


async def load(job: Job) -> None:
    """Write concurrently through every write operation, until the process is ended."""
    rng = random.Random(job["seed"])
    tag = job["tag"]
    async with Tellback(job["url"], summary_every=5) as tb:
        log = tb.user(USER).conversations
        own_conversation = await log.create("crash")
        emit(created=own_conversation.id)
        ids = [own_conversation.id, *job["conversations"]]

        async def append(name: str) -> None:
            for number in itertools.count(1):
                text = f"{name} {number} " + "x" * rng.choice((10, 200, 30_000))
                acknowledge(await log.append_user_message(rng.choice(ids), text))

        async def append_turn(name: str) -> None:
            for number in itertools.count(1):
                turn = await log.append_turn(rng.choice(ids), f"{name} {number}?", {"content": f"{name} {number}!"})
                acknowledge(turn.user_message)
                acknowledge(turn.assistant_message)

        async def run_turn(name: str, slow: bool) -> None:
            model = tool_model(name, delay=0.3 if slow else 0.0)

            async def look(at: str) -> str:
                """Look."""
                emit(looking=at)
                await asyncio.sleep(0.2 if slow else 0)
                return f"seen by {at}"

            for number in itertools.count(1):
                outcome = await log.run_turn(rng.choice(ids), model, f"{name} {number}", tools=[look])
                for message in outcome.appended_messages:
                    acknowledge(message)

        operations: list[Callable[[], Awaitable[None]]] = []
        for index in range(2):
            operations.append(lambda name=f"{tag}-append-{index}": append(name))  # type: ignore[misc]
            operations.append(lambda name=f"{tag}-both-{index}": append_turn(name))  # type: ignore[misc]
            operations.append(lambda name=f"{tag}-quick-{index}": run_turn(name, False))  # type: ignore[misc]
            operations.append(lambda name=f"{tag}-slow-{index}": run_turn(name, True))  # type: ignore[misc]
        await asyncio.gather(*map(_repeat_after_store_errors, operations))


async def _repeat_after_store_errors(operation: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await operation()
        except StoreError as error:
            emit(failed=type(error).__name__, in_doubt=error.in_doubt)
            await asyncio.sleep(0.01)


async def append(job: Job) -> None:
    """Append `count` messages in sequence, with an optional pause (`rest`) between them."""
    async with Tellback(job["url"], summary_every=None) as tb:
        log = tb.user(USER).conversations
        for number in range(job["count"]):
            id = job["conversations"][number % len(job["conversations"])]
            acknowledge(await log.append_user_message(id, f"{job['tag']} {number}"), at=time.time())
            await asyncio.sleep(job.get("rest", 0))


async def append_keyed(job: Job) -> None:
    """Append messages with the given idempotency keys concurrently."""
    async with Tellback(job["url"], summary_every=None) as tb:
        log = tb.user(USER).conversations

        async def append_with_key(key: str) -> None:
            message = await log.append_user_message(job["conversation"], f"{job['tag']} {key}", key)
            acknowledge(message, key=key)

        emit(opened=True)
        await read_line()
        await asyncio.gather(*map(append_with_key, job["keys"]))


async def run_turns(job: Job) -> None:
    """Run `count` turns with a tool in sequence."""
    async with Tellback(job["url"], summary_every=None) as tb:
        log = tb.user(USER).conversations
        model = tool_model(job["tag"], delay=0.005)

        async def look(at: str) -> str:
            """Look."""
            return f"seen by {at}"

        for number in range(job["count"]):
            outcome = await log.run_turn(job["conversation"], model, f"{job['tag']} {number}", tools=[look])
            for message in outcome.appended_messages:
                acknowledge(message, turn=outcome.turn_id)


async def hold_turn(job: Job) -> None:
    """Run a turn whose tool blocks until another line arrives."""
    async with Tellback(job["url"], summary_every=None) as tb:
        log = tb.user(USER).conversations
        outcome = await log.run_turn(
            job["conversation"], tool_model("holder"), "Hold on.", tools=[_make_blocking_tool(log, job["conversation"])]
        )
        emit(done=outcome.status)


def _make_blocking_tool(log: Conversations, id: str) -> Callable[[str], Awaitable[str]]:
    async def look(at: str) -> str:
        """Look."""
        emit(running=(await log.messages(id))[-1].turn_id)
        await read_line()
        return f"seen by {at}"

    return look


async def open_once(job: Job) -> None:
    """Open a store that may not exist or may need the given `migrations`, and write to it."""
    if "migrations" in job:
        catalogue.MIGRATIONS_FOLDER = Path(job["migrations"])
    async with Tellback(job["url"]) as tb:
        log = tb.user(USER).conversations
        conversation = await log.create("race")
        acknowledge(await log.append_user_message(conversation.id, "first"))


async def without_rights(job: Job) -> None:
    """Read and write as an operating system user with read access only."""
    SqliteStore(":memory:"), statements("sqlite"), migrations("sqlite")  # later, the files may not be accessible
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    step_name = "open"
    try:
        async with Tellback(job["url"], summary_every=None) as tb:
            log = tb.user(USER).conversations
            step_name = "read"
            emit(read=[message.text for message in await log.messages(job["conversation"])])
            step_name = "write"
            acknowledge(await log.append_user_message(job["conversation"], "by nobody"))
    except TellbackError as error:
        emit(error=type(error).__name__, doing=step_name, text=str(error))


PROGRAMS = {
    program.__name__: program
    for program in (load, append, append_keyed, run_turns, hold_turn, open_once, without_rights)
}


def run(program: str) -> None:
    """Run a program of this file or of another (`module:name`) when its job arrives."""
    module, _, name = program.rpartition(":")
    found = getattr(importlib.import_module(module), name) if module else PROGRAMS[name]
    emit(ready=True)
    line = sys.stdin.readline()
    if line:
        asyncio.run(found(json.loads(line)))
