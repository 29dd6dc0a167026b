"""Shared code of the workers of bench/persist.py: batches of turns on conversations of a given length, in a fresh file.

A batch is spread over several conversations, so that each stays near the length; the mean of their lengths is the given
length. Conversations are filled before the clock starts. The last turn before it is a real one, so that no
first use is timed. Everything is checked after the clock has stopped, with the file opened a second time.
"""

from __future__ import annotations

import gc
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import protocol
from protocol import expect

TEXT_LENGTH = 120
ANSWER = "That sounds good to me. ".ljust(TEXT_LENGTH, ".")
WARM_UP_MS = 100.0
WARM_UP_COUNT = 5


def numbered_text(index: int) -> str:
    """Return the text of a message: all have the same size, and all differ."""
    return f"{index:06d} tells of the day, ".ljust(TEXT_LENGTH, ".")


@dataclass
class CallLog:
    """The number of messages in each call of the fake model, and the messages of the last call."""

    lengths: list[int] = field(default_factory=list)
    last: Sequence[Any] = ()

    def record_call(self, messages: Sequence[Any]) -> None:
        self.lengths.append(len(messages))
        self.last = messages


class ConversationStore(Protocol):
    """A library that stores conversations in a SQLite file."""

    async def open(self, path: Path) -> None: ...

    async def close(self) -> None: ...

    async def fill(self, texts: Sequence[str]) -> str:
        """Create a conversation with these messages, alternating between user and assistant; return its id."""
        ...

    async def turn(self, id: str, text: str) -> str: ...

    async def load_texts(self, id: str) -> list[str]:
        """Return the texts of all messages, in order."""
        ...

    def window(self, length: int) -> int:
        """Return how many messages are sent to the model if the conversation has this length."""
        ...

    def text(self, message: Any) -> str:
        """Return the text of a message, as sent to the model."""
        ...


@dataclass(frozen=True)
class Plan:
    """The number of turns, and the number of conversations they are spread over."""

    length: int
    turns: int
    conversations: int

    @classmethod
    def of(cls, length: int, count: int) -> Plan:
        # An odd number of turns: conversations then start with an even number of messages, and in the middle turn, a
        # conversation has exactly the given length.
        turns = min(max(5, length // 10), max(count - 1, 1)) | 1
        return cls(length, turns, max(1, round(count / turns)))

    @property
    def initial_length(self) -> int:
        return self.length - (self.turns - 1)

    @property
    def count(self) -> int:
        return self.turns * self.conversations


async def time_turns(
    store: ConversationStore, call_log: CallLog, path: Path, length: int, count: int
) -> dict[str, float]:
    """Return the CPU and wall milliseconds, and the bytes of growth, of one turn."""
    plan = Plan.of(length, count)
    earlier_texts = [numbered_text(index) for index in range(plan.initial_length)]
    earlier_texts[-1] = ANSWER
    questions = [numbered_text(plan.initial_length + 2 * index) for index in range(plan.turns)]
    await store.open(path)
    ids = []
    for _ in range(plan.conversations):
        ids.append(await store.fill(earlier_texts[:-2]))
        await store.turn(ids[-1], earlier_texts[-2])
    size = size_of(path)
    call_log.lengths.clear()
    answers = []
    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    for id in ids:
        answers += [await store.turn(id, question) for question in questions]
    await protocol.settle()
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall
    growth = size_of(path) - size

    expect("answers", answers, [ANSWER] * plan.count)
    windows = [store.window(plan.initial_length + 2 * index) for index in range(plan.turns)]
    expect("messages sent to the model", call_log.lengths, windows * plan.conversations)
    expected_texts = [*earlier_texts, *(text for question in questions for text in (question, ANSWER))]
    # A framework may have appended the answer to the list it passed to the model.
    expect(
        "texts sent to the model",
        [store.text(message) for message in call_log.last][: windows[-1]],
        expected_texts[:-1][-windows[-1] :],
    )
    await store.close()
    await store.open(path)
    for id in ids:
        expect("messages on disk", await store.load_texts(id), expected_texts)
    await store.close()
    return per_operation(plan.count, cpu, wall) | {"bytes": growth / plan.count}


def per_operation(count: int, cpu: float, wall: float) -> dict[str, float]:
    """Convert the seconds of a batch to the milliseconds of one operation."""
    return {"cpu_ms": 1000 * cpu / count, "wall_ms": 1000 * wall / count}


def size_of(path: Path) -> int:
    """Return the bytes of the file and its log. Empty the log first, so that its content is in the file."""
    connection = sqlite3.connect(path)
    try:
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.close()
    expect("busy connections", busy, 0)
    files = path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_size for file in files if not file.name.endswith("-shm"))


Batch = Callable[[Path, int], Awaitable[dict[str, float]]]
"""Measures the given number of operations on a new file."""


def serve(
    store: ConversationStore, call_log: CallLog, packages: Sequence[str], extra_batches: dict[str, Batch] | None = None
) -> None:
    """Answer requests for turns, and those in `extra_batches`."""
    batches = extra_batches or {}

    async def handle_request(request: dict[str, Any]) -> dict[str, Any]:
        async def turns(path: Path, count: int) -> dict[str, float]:
            return await time_turns(store, call_log, path, request["length"], count)

        batch = batches.get(request["kind"], turns)
        folder = Path(request["folder"])
        if request["count"] is None:
            return {"estimate_ms": await _warm_up(batch, folder)}
        return await _run_in_fresh_file(batch, folder, request["count"])

    protocol.answer_requests(handle_request, ["turn", *batches], packages)


async def _warm_up(batch: Batch, folder: Path) -> float:
    count = WARM_UP_COUNT
    while True:
        cpu_ms = (await _run_in_fresh_file(batch, folder, count))["cpu_ms"]
        if count > WARM_UP_COUNT and cpu_ms * count >= WARM_UP_MS:
            return cpu_ms
        count *= 4


async def _run_in_fresh_file(batch: Batch, folder: Path, count: int) -> dict[str, float]:
    try:
        return await batch(folder / "kept.db", count)
    finally:
        _delete_files(folder)


def _delete_files(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
