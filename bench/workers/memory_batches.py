"""What the workers of bench/memory.py share: memories that are filled in, recalled from and added to.

Texts, and the vectors a static embedder made of them, are prepared by the parent. Peers look their vectors up, which
costs nothing; Tellback embeds by itself. Every question is asked once. That the hits are as many as asked for, of the
one user, and the right ones, is checked after the clock has stopped.
"""

from __future__ import annotations

import gc
import json
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
OTHER = "noah"
HITS = 10
MISSED_MOST = 0.05
"""Questions share rare words with the memory that answers them: whoever misses more does not search all of it."""
SMALL = 1_000
"""Up to this size adding grows a space noticeably, so that a fresh one is filled for each batch."""
WARM_UP_MS = 100.0
WARM_UP_COUNT = 5


@dataclass(frozen=True)
class Material(Vectors):
    """What is remembered and asked. A question names the memory that answers it by its number."""

    memories: list[str]
    questions: dict[int, list[tuple[str, int]]]
    others: list[str]
    added: list[tuple[str, str]]
    embedded: list[str]
    folder: Path


@cache
def material(folder: str) -> Material:
    """As the parent prepared it."""
    given = json.loads((Path(folder) / "texts.json").read_text())
    return Material(
        memories=given["memories"],
        questions={int(size): [(text, index) for text, index in asked] for size, asked in given["questions"].items()},
        others=given["others"],
        added=[(text, question) for text, question in given["added"]],
        embedded=given["embedded"],
        folder=Path(folder),
    )


class Rememberer(Protocol):
    """A library that keeps memories of users, and finds them by meaning."""

    async def open(self, folder: Path, material: Material) -> None: ...

    async def fill(self, user: str, texts: Sequence[str]) -> None:
        """Remember many, as fast as the library allows."""
        ...

    async def recall(self, user: str, question: str) -> Any:
        """The best hits for a question, as the library gives them."""
        ...

    def hits(self, recalled: Any) -> list[tuple[str, str]]:
        """Whose memory each hit is, and its text."""
        ...

    async def add(self, user: str, text: str) -> None:
        """Remember one more, so that it can be recalled from then on."""
        ...


class Stores:
    """The stores of a worker by their names, and how much of the material was used so far."""

    def __init__(self, make: Callable[[], Rememberer]) -> None:
        self._make = make
        self._open: dict[str, Rememberer] = {}
        self._asked: dict[int, int] = {}
        self._added = 0
        self._fresh = 0

    def opened(self, request: dict[str, Any]) -> Rememberer:
        return self._open[request["store"]]

    async def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        """A part of a store's memories; the first part opens it."""
        name, given = request["store"], material(request["material"])
        if name not in self._open:
            store = self._make()
            await store.open(Path(request["folder"]), given)
            await store.fill(OTHER, given.others)
            self._open[name] = store
        start, end = request["part"]
        await self._open[name].fill(USER, given.memories[start:end])
        return {"filled": end}

    async def recall(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        return await timed_recalls(self.opened(request), self.next_questions(request, count))

    async def other(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """How many hits the user with few memories gets, whose memories are among those of the other. Not timed."""
        store, texts = self.opened(request), material(request["material"]).others
        found = []
        for text in texts[:count]:
            hits = store.hits(await store.recall(OTHER, text))
            expect(f"users of the hits for {text!r}", {user for user, _ in hits} <= {OTHER}, True)
            found.append(len(hits))
        return {"hits": sum(found) / len(found), "walls_ms": [0.0]}

    async def add(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Adding memories; that they are recalled afterwards is checked, not timed."""
        size, given = request["size"], material(request["material"])
        store = self.opened(request)
        user = USER
        if size <= SMALL:
            self._fresh += 1
            user = f"{USER}-{self._fresh}"
            await store.fill(user, given.memories[:size])
            # The first recall makes what the later ones use: adding to it is part of the cost.
            await store.recall(user, given.questions[size][0][0])
        new = self.next_added(given, count)
        walls: list[float] = []
        gc.collect()
        cpu = time.process_time()
        for text, _ in new:
            start = time.perf_counter()
            await store.add(user, text)
            walls.append(1000 * (time.perf_counter() - start))
        await protocol.settle()
        cpu = time.process_time() - cpu
        text, question = new[-1]
        found = [hit for _, hit in store.hits(await store.recall(user, question))]
        expect("the added memory is found", any(hit.endswith(text) for hit in found), True)
        return {"cpu_ms": 1000 * cpu / count, "walls_ms": walls}

    def next_questions(self, request: dict[str, Any], count: int) -> list[tuple[str, str]]:
        """Questions that were not asked yet, and the memories that answer them."""
        size, given = request["size"], material(request["material"])
        start = self._asked.get(size, 0)
        asked = given.questions[size][start : start + count]
        expect("questions left", len(asked), count)
        self._asked[size] = start + count
        return [(question, given.memories[index]) for question, index in asked]

    def next_added(self, given: Material, count: int) -> list[tuple[str, str]]:
        new = given.added[self._added : self._added + count]
        expect("memories left to add", len(new), count)
        self._added += count
        return new


async def timed_recalls(store: Rememberer, asked: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Wall times of single recalls, and the CPU time of one."""
    walls: list[float] = []
    recalled: list[Any] = []
    gc.collect()
    cpu = time.process_time()
    for question, _ in asked:
        start = time.perf_counter()
        recalled.append(await store.recall(USER, question))
        walls.append(1000 * (time.perf_counter() - start))
    await protocol.settle()
    cpu = time.process_time() - cpu
    return {"cpu_ms": 1000 * cpu / len(asked), "walls_ms": walls, "found": checked(store, recalled, asked)}


def checked(store: Rememberer, recalled: Sequence[Any], asked: Sequence[tuple[str, str]]) -> float:
    """How many questions found the memory that answers them, if that is nearly all."""
    found = 0
    for (question, answer), one in zip(asked, recalled, strict=True):
        hits = store.hits(one)
        expect(f"hits for {question!r}", len(hits), HITS)
        expect(f"users of the hits for {question!r}", {user for user, _ in hits}, {USER})
        expect(f"different hits for {question!r}", len({text for _, text in hits}), HITS)
        found += any(text.endswith(answer) for _, text in hits)
    if len(asked) - found > max(1, MISSED_MOST * len(asked)):
        raise AssertionError(f"only {found} of {len(asked)} questions found the memory that answers them")
    return found / len(asked)


Batch = Callable[[dict[str, Any], int], Awaitable[dict[str, Any]]]
"""Measures so many operations."""


def serve(make: Callable[[], Rememberer], packages: Sequence[str], more: Callable[[Stores], dict[str, Batch]]) -> None:
    """Answer requests to fill, to recall and to add, and for whatever `more` a worker can do."""
    stores = Stores(make)
    batches: dict[str, Batch] = {"recall": stores.recall, "add": stores.add, "other": stores.other, **more(stores)}

    async def measured(request: dict[str, Any]) -> dict[str, Any]:
        kind = request["kind"]
        if kind == "fill":
            return await stores.fill(request)
        if request["count"] is None:
            return {"estimate_ms": await _warm_up(batches[kind], request)}
        return await batches[kind](request, request["count"])

    protocol.answer_requests(measured, ["fill", *batches], packages)


def nothing_more(stores: Stores) -> dict[str, Batch]:
    return {}


async def _warm_up(batch: Batch, request: dict[str, Any]) -> float:
    """Milliseconds of wall time that one operation takes, roughly, once everything is in place."""
    count = WARM_UP_COUNT
    while True:
        walls = (await batch(request, count))["walls_ms"]
        if count > WARM_UP_COUNT or sum(walls) >= WARM_UP_MS:
            return sorted(map(float, walls))[len(walls) // 2]
        count *= 4
