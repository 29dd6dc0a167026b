"""Shared code of the workers of bench/sessions.py: saving turns to a session of a given length, and loading sessions.

Batches are spread as in persist_batches.py: the mean of the lengths at each save is the given length. Sessions are
filled and saved once before the clock starts, and the stored data is read again after it has stopped.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import protocol
from persist_batches import ANSWER, WARM_UP_COUNT, WARM_UP_MS, Plan, numbered_text, per_operation
from protocol import expect

TAIL = 30
GATHERED = {"destination": "Lisbon", "departure": "2026-12-01", "passengers": 2, "seat": "window", "bags": 1}
"""The data of a session besides its messages."""


class SessionStore(Protocol):
    """A library that stores sessions in a database: a file, or the one at a URL."""

    async def open(self, location: str) -> None: ...

    async def close(self) -> None: ...

    async def fill(self, id: str, texts: Sequence[str]) -> None:
        """Create a session with these messages, alternating between user and assistant."""
        ...

    async def save(self, id: str, question: str, answer: str) -> None:
        """Save a turn: the position of the session, and two messages."""
        ...

    async def load(self, id: str) -> Sequence[str]:
        """Return the position and the texts of the last `TAIL` messages (or of all, if the library cannot limit)."""
        ...


async def time_saves(store: SessionStore, length: int, count: int) -> dict[str, float]:
    plan = Plan.of(length, count)
    earlier_texts = [numbered_text(index) for index in range(plan.initial_length)]
    questions = [numbered_text(plan.initial_length + 2 * index) for index in range(plan.turns)]
    ids = [uuid.uuid4().hex for _ in range(plan.conversations)]
    for id in ids:
        await store.fill(id, earlier_texts[:-2])
        await store.save(id, earlier_texts[-2], earlier_texts[-1])

    async def save_all() -> None:
        for id in ids:
            for question in questions:
                await store.save(id, question, ANSWER)

    cpu, wall = await _time_work(save_all)
    expected_texts = [*earlier_texts, *(text for question in questions for text in (question, ANSWER))]
    for id in ids:
        _check_tail(await store.load(id), expected_texts)
    return per_operation(plan.count, cpu, wall)


async def time_loads(store: SessionStore, length: int, count: int) -> dict[str, float]:
    id, texts = uuid.uuid4().hex, [numbered_text(index) for index in range(length)]
    await store.fill(id, texts[:-2])
    await store.save(id, texts[-2], texts[-1])
    loaded: list[Sequence[str]] = []

    async def load_all() -> None:
        loaded.extend([await store.load(id) for _ in range(count)])

    cpu, wall = await _time_work(load_all)
    for each in loaded:
        _check_tail(each, texts)
    return per_operation(count, cpu, wall)


KINDS = {"save": time_saves, "load": time_loads}


def serve(create_store: Callable[[], SessionStore], packages: Sequence[str]) -> None:
    """Answer requests, which contain the URL of a server, or a folder for a new file in each batch."""

    async def handle_request(request: dict[str, Any]) -> dict[str, Any]:
        async def batch(count: int) -> dict[str, float]:
            folder = Path(request["folder"])
            store = create_store()
            await store.open(request["url"] or str(folder / "sessions.db"))
            try:
                return await KINDS[request["kind"]](store, request["length"], count)
            finally:
                await store.close()
                _delete_files(folder)

        return {"estimate_ms": await _warm_up(batch)} if request["count"] is None else await batch(request["count"])

    protocol.answer_requests(handle_request, [*KINDS], packages)


async def _warm_up(batch: Callable[[int], Awaitable[dict[str, float]]]) -> float:
    count = WARM_UP_COUNT
    while True:
        cpu_ms = (await batch(count))["cpu_ms"]
        if count > WARM_UP_COUNT and cpu_ms * count >= WARM_UP_MS / 2:
            return cpu_ms
        count *= 4


async def _time_work(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    await work()
    await protocol.settle()
    cpu = time.process_time() - cpu
    return cpu, time.perf_counter() - wall


def _delete_files(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _check_tail(texts: Sequence[str], expected_texts: Sequence[str]) -> None:
    expect("enough messages", len(texts) >= min(TAIL, len(expected_texts)), True)
    expect("messages", [*texts][-TAIL:], [*expected_texts][-TAIL:])
