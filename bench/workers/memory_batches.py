"""Shared code of the workers of bench/memory.py: memories that are filled in, recalled and added.

The parent prepares the texts, and their vectors from a static embedder. Peers look the vectors up, which costs nothing;
Tellback embeds the texts itself. Every question is asked once. After the clock has stopped, the worker checks the
number of hits, that they belong to the right user, and that they answer the question.
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
MAX_MISSED_SHARE = 0.05
"""Questions share rare words with their answers, so a contender that misses more does not search everything."""
SMALL = 1_000
"""Up to this size additions grow a space noticeably, so each batch fills a fresh one."""
WARM_UP_MS = 100.0
WARM_UP_COUNT = 5


@dataclass(frozen=True)
class MemoryData(Vectors):
    """The memories and the questions. A question has the number of the memory that answers it."""

    memories: list[str]
    questions: dict[int, list[tuple[str, int]]]
    others: list[str]
    added: list[tuple[str, str]]
    embedded: list[str]
    folder: Path


@cache
def load_data(folder: str) -> MemoryData:
    """Load the data that the parent prepared."""
    data = json.loads((Path(folder) / "texts.json").read_text())
    return MemoryData(
        memories=data["memories"],
        questions={
            int(size): [(text, index) for text, index in questions] for size, questions in data["questions"].items()
        },
        others=data["others"],
        added=[(text, question) for text, question in data["added"]],
        embedded=data["embedded"],
        folder=Path(folder),
    )


class MemoryLibrary(Protocol):
    """A library that stores the memories of users, and searches them by meaning."""

    async def open(self, folder: Path, data: MemoryData) -> None: ...

    async def fill(self, user: str, texts: Sequence[str]) -> None:
        """Store many memories, as fast as the library allows."""
        ...

    async def recall(self, user: str, question: str) -> Any:
        """Return the best hits for a question, in the library's form."""
        ...

    def hits(self, recalled: Any) -> list[tuple[str, str]]:
        """Return the user and the text of each hit."""
        ...

    async def add(self, user: str, text: str) -> None:
        """Store one more memory, so that it can be recalled from then on."""
        ...


class Stores:
    """A worker's stores by name, and how many questions and new memories were used."""

    def __init__(self, create_library: Callable[[], MemoryLibrary]) -> None:
        self._create_library = create_library
        self._libraries: dict[str, MemoryLibrary] = {}
        self._questions_used: dict[int, int] = {}
        self._memories_added = 0
        self._fresh_users = 0

    def library_for(self, request: dict[str, Any]) -> MemoryLibrary:
        return self._libraries[request["store"]]

    async def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Add a part of a store's memories; the first part opens it."""
        name, data = request["store"], load_data(request["data_folder"])
        if name not in self._libraries:
            library = self._create_library()
            await library.open(Path(request["folder"]), data)
            await library.fill(OTHER, data.others)
            self._libraries[name] = library
        start, end = request["part"]
        await self._libraries[name].fill(USER, data.memories[start:end])
        return {"filled": end}

    async def recall(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        return await time_recalls(self.library_for(request), self.next_questions(request, count))

    async def other(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Return the number of hits for the user with few memories, in the other user's store. Not timed."""
        library, texts = self.library_for(request), load_data(request["data_folder"]).others
        hit_counts = []
        for text in texts[:count]:
            hits = library.hits(await library.recall(OTHER, text))
            expect(f"users of the hits for {text!r}", {user for user, _ in hits} <= {OTHER}, True)
            hit_counts.append(len(hits))
        return {"hits": sum(hit_counts) / len(hit_counts), "walls_ms": [0.0]}

    async def add(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Measure adding memories; then check, untimed, that they are recalled."""
        size, data = request["size"], load_data(request["data_folder"])
        library = self.library_for(request)
        user = USER
        if size <= SMALL:
            self._fresh_users += 1
            user = f"{USER}-{self._fresh_users}"
            await library.fill(user, data.memories[:size])
            # The first recall fills the caches; updating them is part of the cost of adding.
            await library.recall(user, data.questions[size][0][0])
        new_memories = self.next_new_memories(data, count)
        walls: list[float] = []
        gc.collect()
        cpu = time.process_time()
        for text, _ in new_memories:
            start = time.perf_counter()
            await library.add(user, text)
            walls.append(1000 * (time.perf_counter() - start))
        await protocol.settle()
        cpu = time.process_time() - cpu
        text, question = new_memories[-1]
        hit_texts = [hit for _, hit in library.hits(await library.recall(user, question))]
        expect("the added memory is found", any(hit.endswith(text) for hit in hit_texts), True)
        return {"cpu_ms": 1000 * cpu / count, "walls_ms": walls}

    def next_questions(self, request: dict[str, Any], count: int) -> list[tuple[str, str]]:
        """Return unused questions, and the memories that answer them."""
        size, data = request["size"], load_data(request["data_folder"])
        start = self._questions_used.get(size, 0)
        questions = data.questions[size][start : start + count]
        expect("questions left", len(questions), count)
        self._questions_used[size] = start + count
        return [(question, data.memories[index]) for question, index in questions]

    def next_new_memories(self, data: MemoryData, count: int) -> list[tuple[str, str]]:
        new_memories = data.added[self._memories_added : self._memories_added + count]
        expect("memories left to add", len(new_memories), count)
        self._memories_added += count
        return new_memories


async def time_recalls(library: MemoryLibrary, questions: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the wall times of single recalls, and the CPU time of one."""
    walls: list[float] = []
    results: list[Any] = []
    gc.collect()
    cpu = time.process_time()
    for question, _ in questions:
        start = time.perf_counter()
        results.append(await library.recall(USER, question))
        walls.append(1000 * (time.perf_counter() - start))
    await protocol.settle()
    cpu = time.process_time() - cpu
    return {
        "cpu_ms": 1000 * cpu / len(questions),
        "walls_ms": walls,
        "found": check_recalls(library, results, questions),
    }


def check_recalls(library: MemoryLibrary, results: Sequence[Any], questions: Sequence[tuple[str, str]]) -> float:
    """Return the share of questions that found their answer; raise if too many did not."""
    found_count = 0
    for (question, answer), result in zip(questions, results, strict=True):
        hits = library.hits(result)
        expect(f"hits for {question!r}", len(hits), HITS)
        expect(f"users of the hits for {question!r}", {user for user, _ in hits}, {USER})
        expect(f"different hits for {question!r}", len({text for _, text in hits}), HITS)
        found_count += any(text.endswith(answer) for _, text in hits)
    if len(questions) - found_count > max(1, MAX_MISSED_SHARE * len(questions)):
        raise AssertionError(f"only {found_count} of {len(questions)} questions found the memory that answers them")
    return found_count / len(questions)


Batch = Callable[[dict[str, Any], int], Awaitable[dict[str, Any]]]
"""Measures the given number of operations."""


def serve(
    create_library: Callable[[], MemoryLibrary],
    packages: Sequence[str],
    build_extra_batches: Callable[[Stores], dict[str, Batch]],
) -> None:
    """Answer requests to fill, recall and add, and those of `build_extra_batches`."""
    stores = Stores(create_library)
    batches: dict[str, Batch] = {
        "recall": stores.recall,
        "add": stores.add,
        "other": stores.other,
        **build_extra_batches(stores),
    }

    async def handle_request(request: dict[str, Any]) -> dict[str, Any]:
        kind = request["kind"]
        if kind == "fill":
            return await stores.fill(request)
        if request["count"] is None:
            return {"estimate_ms": await _warm_up(batches[kind], request)}
        return await batches[kind](request, request["count"])

    protocol.answer_requests(handle_request, ["fill", *batches], packages)


def no_extra_batches(stores: Stores) -> dict[str, Batch]:
    return {}


async def _warm_up(batch: Batch, request: dict[str, Any]) -> float:
    """Return a rough estimate of the wall milliseconds of one operation after warm-up."""
    count = WARM_UP_COUNT
    while True:
        walls = (await batch(request, count))["walls_ms"]
        if count > WARM_UP_COUNT or sum(walls) >= WARM_UP_MS:
            return sorted(map(float, walls))[len(walls) // 2]
        count *= 4
