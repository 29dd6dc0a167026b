"""What the workers of bench/sessions.py share: turns saved to a session of a given length, and sessions loaded.

Batches are spread as in persist_batches.py: the lengths that saves find have the wanted length as their mean. Sessions
are filled and saved to once before the clock starts, and what was stored is read again after it has stopped.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import protocol
from persist_batches import ANSWER, WARM_UP_COUNT, WARM_UP_MS, Plan, per_operation, said
from protocol import expect

TAIL = 30
GATHERED = {"destination": "Lisbon", "departure": "2026-12-01", "passengers": 2, "seat": "window", "bags": 1}
"""What a session holds beside its messages."""


class Keeper(Protocol):
    """A library that keeps sessions in a database: a file, or that of a URL."""

    async def open(self, place: str) -> None: ...

    async def close(self) -> None: ...

    async def fill(self, id: str, texts: Sequence[str]) -> None:
        """A new session that holds these messages, the user's and the assistant's in turn."""
        ...

    async def save(self, id: str, question: str, answer: str) -> None:
        """What a turn leaves behind: where the session stands, and two messages."""
        ...

    async def load(self, id: str) -> Sequence[str]:
        """Where the session stands, and the texts of its last messages: `TAIL` of them if it can tell."""
        ...


async def timed_saves(keeper: Keeper, length: int, count: int) -> dict[str, float]:
    plan = Plan.of(length, count)
    before = [said(index) for index in range(plan.filled)]
    questions = [said(plan.filled + 2 * index) for index in range(plan.turns)]
    ids = [uuid.uuid4().hex for _ in range(plan.conversations)]
    for id in ids:
        await keeper.fill(id, before[:-2])
        await keeper.save(id, before[-2], before[-1])

    async def save_all() -> None:
        for id in ids:
            for question in questions:
                await keeper.save(id, question, ANSWER)

    cpu, wall = await _timed(save_all)
    wanted = [*before, *(text for question in questions for text in (question, ANSWER))]
    for id in ids:
        _check_tail(await keeper.load(id), wanted)
    return per_operation(plan.count, cpu, wall)


async def timed_loads(keeper: Keeper, length: int, count: int) -> dict[str, float]:
    id, texts = uuid.uuid4().hex, [said(index) for index in range(length)]
    await keeper.fill(id, texts[:-2])
    await keeper.save(id, texts[-2], texts[-1])
    found: list[Sequence[str]] = []

    async def load_all() -> None:
        found.extend([await keeper.load(id) for _ in range(count)])

    cpu, wall = await _timed(load_all)
    for each in found:
        _check_tail(each, texts)
    return per_operation(count, cpu, wall)


KINDS = {"save": timed_saves, "load": timed_loads}


def serve(make: Callable[[], Keeper], packages: Sequence[str]) -> None:
    """Answer requests: a URL of a server that keeps what it has, or a folder for a file that is new in each batch."""

    async def measured(request: dict[str, Any]) -> dict[str, Any]:
        async def batch(count: int) -> dict[str, float]:
            folder = Path(request["folder"])
            keeper = make()
            await keeper.open(request["url"] or str(folder / "sessions.db"))
            try:
                return await KINDS[request["kind"]](keeper, request["length"], count)
            finally:
                await keeper.close()
                _empty(folder)

        return {"estimate_ms": await _warm_up(batch)} if request["count"] is None else await batch(request["count"])

    protocol.answer_requests(measured, [*KINDS], packages)


async def _warm_up(batch: Callable[[int], Awaitable[dict[str, float]]]) -> float:
    count = WARM_UP_COUNT
    while True:
        cpu_ms = (await batch(count))["cpu_ms"]
        if count > WARM_UP_COUNT and cpu_ms * count >= WARM_UP_MS / 2:
            return cpu_ms
        count *= 4


async def _timed(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    await work()
    await protocol.settle()
    cpu = time.process_time() - cpu
    return cpu, time.perf_counter() - wall


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _check_tail(found: Sequence[str], wanted: Sequence[str]) -> None:
    expect("enough messages", len(found) >= min(TAIL, len(wanted)), True)
    expect("messages", [*found][-TAIL:], [*wanted][-TAIL:])
