"""What `tellback bench` measures, in a folder of its own that is deleted afterwards."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tellback.app import Tellback

STARTS = 5
"""How often an interpreter is started: that is slow, and varies little."""

SUBJECTS = ("Maya", "Tom", "Lena", "the dentist", "grandmother", "the landlord", "Ravi", "the choir")
DEEDS = ("moved to", "called about", "booked a table in", "wrote from", "dreams of", "was born in", "works in")
PLACES = ("Lisbon", "Porto", "Hamburg", "a village near Turin", "the old town", "Kyoto", "Cork", "the harbour")


@dataclass(frozen=True, slots=True)
class Measure:
    """How long something took, in milliseconds: half of the times at most `median_ms`, and 95 of 100 at most `p95_ms`.

    `cpu_ms` is what all threads of the process used for it each time, on average.
    """

    what: str
    rounds: int
    median_ms: float
    p95_ms: float
    cpu_ms: float
    note: str = ""


async def measured(atoms: int, rounds: int, tell: Callable[[str], None]) -> list[Measure]:
    """Measure it all; `tell` is called with what comes next."""
    from tellback.app import Tellback
    from tellback.testing import FunctionModel

    tell("import")
    found = [await asyncio.to_thread(_import)]
    with tempfile.TemporaryDirectory(prefix="tellback-bench-") as folder:
        model = FunctionModel(lambda _: "All is well.")
        async with Tellback(Path(folder) / "bench.db", model=model, summary_every=None, patterns=None) as rc:
            tell("append")
            found.append(await _append(rc, rounds))
            tell("a turn")
            found.append(await _turn(rc, rounds))
            tell(f"recall from {atoms} memories")
            found.append(await _recall(rc, atoms, rounds))
    return found


def _import() -> Measure:
    program = (
        "import time; began = time.perf_counter(), time.process_time(); from tellback import Tellback;"
        "print(time.perf_counter() - began[0], time.process_time() - began[1])"
    )
    walls, cpus = [], []
    for _ in range(STARTS):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
        )
        wall, cpu = map(float, done.stdout.split())
        walls.append(wall * 1_000)
        cpus.append(cpu * 1_000)
    return _measure("import Tellback", walls, sum(cpus) / len(cpus), "in a fresh interpreter")


async def _append(rc: Tellback, rounds: int) -> Measure:
    user = rc.user("bench-append")
    talk = await user.conversations.create("bench")
    await user.conversations.append_user_message(talk.id, "The first one warms up.")
    return await _timed(
        "append a message",
        rounds,
        lambda number: user.conversations.append_user_message(talk.id, f"Message {number} is about {_fact(number)}"),
        "committed to a file",
    )


async def _turn(rc: Tellback, rounds: int) -> Measure:
    user = rc.user("bench-turn")
    await user.chat("Hello.")
    return await _timed("a turn", rounds, lambda number: user.chat(_fact(number)), "recall, store, answer, store")


async def _recall(rc: Tellback, atoms: int, rounds: int) -> Measure:
    memory = rc.user("bench-recall").memory
    space = await memory.create_space("bench")
    await memory.add_atoms(space.id, [{"text": _fact(number)} for number in range(atoms)])
    await memory.recall_by_topic(space.id, "Who moved to Lisbon?")
    return await _timed(
        f"recall from {atoms:,}",
        rounds,
        lambda number: memory.recall_by_topic(space.id, _question(number)),
        "by topic, 10 hits",
    )


async def _timed(what: str, rounds: int, work: Callable[[int], Awaitable[object]], note: str) -> Measure:
    walls = []
    cpu = time.process_time()
    for number in range(rounds):
        began = time.perf_counter()
        await work(number)
        walls.append((time.perf_counter() - began) * 1_000)
    return _measure(what, walls, (time.process_time() - cpu) * 1_000 / rounds, note)


def _measure(what: str, walls: list[float], cpu: float, note: str) -> Measure:
    ordered = sorted(walls)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return Measure(what, len(walls), round(median(walls), 3), round(p95, 3), round(cpu, 3), note)


def _fact(number: int) -> str:
    who, deed = SUBJECTS[number % len(SUBJECTS)], DEEDS[number // 8 % len(DEEDS)]
    return f"{who} {deed} {PLACES[number // 56 % len(PLACES)]} on day {number}."


def _question(number: int) -> str:
    return f"What did {SUBJECTS[number % len(SUBJECTS)]} do in {PLACES[number // 8 % len(PLACES)]}?"
