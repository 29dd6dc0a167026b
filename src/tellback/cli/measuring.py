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

INTERPRETER_STARTS = 5
"""How often an interpreter is started: that is slow, and varies little."""

SUBJECTS = ("Maya", "Tom", "Lena", "the dentist", "grandmother", "the landlord", "Ravi", "the choir")
ACTIONS = ("moved to", "called about", "booked a table in", "wrote from", "dreams of", "was born in", "works in")
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


async def measure_all(atoms: int, rounds: int, on_step: Callable[[str], None]) -> list[Measure]:
    """Measure it all; `tell` is called with what comes next."""
    from tellback.app import Tellback
    from tellback.testing import FunctionModel

    on_step("import")
    measures = [await asyncio.to_thread(_measure_import)]
    with tempfile.TemporaryDirectory(prefix="tellback-bench-") as folder:
        model = FunctionModel(lambda _: "All is well.")
        async with Tellback(Path(folder) / "bench.db", model=model, summary_every=None, patterns=None) as rc:
            on_step("append")
            measures.append(await _measure_append(rc, rounds))
            on_step("a turn")
            measures.append(await _measure_turn(rc, rounds))
            on_step(f"recall from {atoms} memories")
            measures.append(await _measure_recall(rc, atoms, rounds))
    return measures


def _measure_import() -> Measure:
    program = (
        "import time; began = time.perf_counter(), time.process_time(); from tellback import Tellback;"
        "print(time.perf_counter() - began[0], time.process_time() - began[1])"
    )
    wall_ms, cpu_ms = [], []
    for _ in range(INTERPRETER_STARTS):
        completed = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
        )
        wall, cpu = map(float, completed.stdout.split())
        wall_ms.append(wall * 1_000)
        cpu_ms.append(cpu * 1_000)
    return _summarize("import Tellback", wall_ms, sum(cpu_ms) / len(cpu_ms), "in a fresh interpreter")


async def _measure_append(rc: Tellback, rounds: int) -> Measure:
    user = rc.user("bench-append")
    conversation = await user.conversations.create("bench")
    await user.conversations.append_user_message(conversation.id, "The first one warms up.")
    return await _time_rounds(
        "append a message",
        rounds,
        lambda number: user.conversations.append_user_message(
            conversation.id, f"Message {number} is about {_sample_fact(number)}"
        ),
        "committed to a file",
    )


async def _measure_turn(rc: Tellback, rounds: int) -> Measure:
    user = rc.user("bench-turn")
    await user.chat("Hello.")
    return await _time_rounds(
        "a turn", rounds, lambda number: user.chat(_sample_fact(number)), "recall, store, answer, store"
    )


async def _measure_recall(rc: Tellback, atoms: int, rounds: int) -> Measure:
    memory = rc.user("bench-recall").memory
    space = await memory.create_space("bench")
    await memory.add_atoms(space.id, [{"text": _sample_fact(number)} for number in range(atoms)])
    await memory.recall_by_topic(space.id, "Who moved to Lisbon?")
    return await _time_rounds(
        f"recall from {atoms:,}",
        rounds,
        lambda number: memory.recall_by_topic(space.id, _sample_question(number)),
        "by topic, 10 hits",
    )


async def _time_rounds(label: str, rounds: int, work: Callable[[int], Awaitable[object]], note: str) -> Measure:
    wall_ms = []
    cpu_started = time.process_time()
    for number in range(rounds):
        started = time.perf_counter()
        await work(number)
        wall_ms.append((time.perf_counter() - started) * 1_000)
    return _summarize(label, wall_ms, (time.process_time() - cpu_started) * 1_000 / rounds, note)


def _summarize(label: str, wall_ms: list[float], cpu_ms: float, note: str) -> Measure:
    ordered = sorted(wall_ms)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return Measure(label, len(wall_ms), round(median(wall_ms), 3), round(p95, 3), round(cpu_ms, 3), note)


def _sample_fact(number: int) -> str:
    subject, action = SUBJECTS[number % len(SUBJECTS)], ACTIONS[number // 8 % len(ACTIONS)]
    return f"{subject} {action} {PLACES[number // 56 % len(PLACES)]} on day {number}."


def _sample_question(number: int) -> str:
    return f"What did {SUBJECTS[number % len(SUBJECTS)]} do in {PLACES[number // 8 % len(PLACES)]}?"
