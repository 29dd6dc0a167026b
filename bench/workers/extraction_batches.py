"""What the workers of bench/extraction.py share: conversations that become memories, with a model that takes no time.

What is known before, the conversations, and what a model finds in them are prepared by the parent. That every
conversation changed what it should is checked after the clock has stopped.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import protocol
from protocol import expect
from vectors import Vectors

USER = "maya"
SMALL = 1_000
"""Up to this size conversations grow what is known noticeably, so that a fresh store is filled for each batch."""
WARM_UP_COUNT = 2
"""Conversations before each batch: the first one loads what the later ones use."""


@dataclass(frozen=True)
class Material(Vectors):
    """What is known of the user and the conversations by size, what a model that is asked decides, and the texts of
    which vectors were made."""

    known: dict[int, list[dict[str, str]]]
    talks: dict[int, list[dict[str, Any]]]
    decision: str
    embedded: list[str]
    folder: Path


@cache
def material(folder: str) -> Material:
    """As the parent prepared it."""
    given = json.loads((Path(folder) / "talks.json").read_text())
    known, conversations = ({int(size): rows for size, rows in given[name].items()} for name in ("known", "talks"))
    return Material(known, conversations, given["decision"], given["embedded"], Path(folder))


class Learner(Protocol):
    """A library that makes memories of conversations."""

    @property
    def model_calls(self) -> int: ...

    async def open(self, folder: Path, material: Material, size: int) -> None: ...

    async def fill(self, known: Sequence[dict[str, str]]) -> None:
        """Have these known, as fast as the library allows."""
        ...

    async def hear(self, conversation: dict[str, Any]) -> Any:
        """Whatever comes before a conversation can become memories; not timed."""
        ...

    async def learn(self, heard: Sequence[Any]) -> Any:
        """Make memories of conversations that were heard, and wait until that is done."""
        ...

    async def check(self, heard: Any) -> dict[str, int]:
        """Raise unless the conversation changed what it should; gives how many facts became what."""
        ...

    async def close(self) -> None: ...


class Learners:
    """The stores of a worker by their size, and how many conversations of each were used."""

    def __init__(self, make: Callable[[], Learner]) -> None:
        self._make = make
        self._open: dict[int, Learner] = {}
        self._used: dict[int, int] = {}
        self._fresh = 0

    async def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        """A part of what is known in the store of a size; the first part opens it."""
        size, given = request["size"], material(request["material"])
        if size not in self._open:
            self._open[size] = await self._opened(Path(request["folder"]), given, size)
        start, end = request["part"]
        await self._open[size].fill(given.known[size][start:end])
        return {"filled": end}

    async def learn(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Conversations one after the other."""
        return await self._batch(request, count, 1)

    async def together(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Conversations that end at once."""
        return await self._batch(request, count, count)

    async def _batch(self, request: dict[str, Any], count: int, at_once: int) -> dict[str, Any]:
        size, given = request["size"], material(request["material"])
        if size > SMALL:
            return await self._measured(self._open[size], given, size, count, at_once)
        self._fresh += 1
        folder = Path(request["folder"]) / f"fresh{self._fresh}"
        self._used[size] = 0
        store = await self._opened(folder, given, size)
        try:
            await store.fill(given.known[size])
            return await self._measured(store, given, size, count, at_once)
        finally:
            await store.close()
            shutil.rmtree(folder)

    async def _measured(self, store: Learner, given: Material, size: int, count: int, at_once: int) -> dict[str, Any]:
        start = self._used.get(size, 0)
        self._used[size] = start + WARM_UP_COUNT + count
        conversations = given.talks[size][start : self._used[size]]
        expect("conversations left", len(conversations), WARM_UP_COUNT + count)
        heard = [await store.hear(conversation) for conversation in conversations]
        for each in heard[:WARM_UP_COUNT]:
            await store.learn([each])
        return await _timed(store, heard[WARM_UP_COUNT:], at_once)

    async def _opened(self, folder: Path, given: Material, size: int) -> Learner:
        store = self._make()
        await store.open(_made(folder), given, size)
        return store


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def _timed(store: Learner, heard: Sequence[Any], at_once: int) -> dict[str, Any]:
    called = store.model_calls
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(heard), at_once):
        await store.learn(heard[start : start + at_once])
    await protocol.settle()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    calls = (store.model_calls - called) / len(heard)
    outcomes = [await store.check(each) for each in heard]
    became = {name: sum(each[name] for each in outcomes) / len(heard) for name in outcomes[0]}
    return {"cpu_ms": 1000 * cpu / len(heard), "wall_ms": 1000 * wall / len(heard), "calls": calls, "became": became}


Batch = Callable[[dict[str, Any], int], Awaitable[dict[str, Any]]]
"""Measures so many operations."""


def serve(make: Callable[[], Learner], packages: Sequence[str], more: dict[str, Batch] | None = None) -> None:
    """Answer requests to fill and to learn, and for whatever `more` a worker can do."""
    learners = Learners(make)
    batches: dict[str, Batch] = {"learn": learners.learn, "together": learners.together, **(more or {})}

    async def measured(request: dict[str, Any]) -> dict[str, Any]:
        if request["kind"] == "fill":
            return await learners.fill(request)
        return await batches[request["kind"]](request, request["count"])

    protocol.answer_requests(measured, ["fill", *batches], packages)


async def rest(seconds: float) -> None:
    """Let what goes on in the background come to its end; waiting costs no CPU."""
    await asyncio.sleep(seconds)
