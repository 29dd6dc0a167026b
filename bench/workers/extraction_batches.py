"""Shared code of the workers of bench/extraction.py: extracting memories from conversations with a fake model.

The parent prepares the known facts, the conversations, and the facts that the model finds in them. After the clock has
stopped, the worker checks the outcome of every conversation.
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
"""Up to this size conversations add noticeably to the known facts, so each batch fills a fresh store."""
WARM_UP_COUNT = 2
"""Warm-up conversations before each batch, because the first one loads modules and caches."""


@dataclass(frozen=True)
class ExtractionData(Vectors):
    """The user's known facts and conversations by size, the model's decision, and the embedded texts."""

    known: dict[int, list[dict[str, str]]]
    conversations: dict[int, list[dict[str, Any]]]
    decision: str
    embedded: list[str]
    folder: Path


@cache
def load_data(folder: str) -> ExtractionData:
    """Load the data that the parent prepared."""
    data = json.loads((Path(folder) / "conversations.json").read_text())
    known_facts, conversations = (
        {int(size): rows for size, rows in data[name].items()} for name in ("known", "conversations")
    )
    return ExtractionData(known_facts, conversations, data["decision"], data["embedded"], Path(folder))


class MemoryExtractor(Protocol):
    """A library that extracts memories from conversations."""

    @property
    def model_calls(self) -> int: ...

    async def open(self, folder: Path, data: ExtractionData, size: int) -> None: ...

    async def fill(self, known: Sequence[dict[str, str]]) -> None:
        """Store the known facts, as fast as the library allows."""
        ...

    async def store(self, conversation: dict[str, Any]) -> Any:
        """Store a conversation, if the library needs that before extraction; not timed."""
        ...

    async def extract(self, conversations: Sequence[Any]) -> Any:
        """Extract memories from stored conversations, and wait until that is finished."""
        ...

    async def check(self, conversation: Any) -> dict[str, int]:
        """Raise unless the conversation had the expected effect; return the number of facts per outcome."""
        ...

    async def close(self) -> None: ...


class ExtractionBatches:
    """A worker's stores by size, and the number of used conversations of each."""

    def __init__(self, create_extractor: Callable[[], MemoryExtractor]) -> None:
        self._create_extractor = create_extractor
        self._extractors: dict[int, MemoryExtractor] = {}
        self._conversations_used: dict[int, int] = {}
        self._fresh_count = 0

    async def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Add a part of the known facts to the store of a size; the first part opens it."""
        size, data = request["size"], load_data(request["data_folder"])
        if size not in self._extractors:
            self._extractors[size] = await self._open_extractor(Path(request["folder"]), data, size)
        start, end = request["part"]
        await self._extractors[size].fill(data.known[size][start:end])
        return {"filled": end}

    async def extract(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Extract from conversations one after the other."""
        return await self._batch(request, count, 1)

    async def together(self, request: dict[str, Any], count: int) -> dict[str, Any]:
        """Extract from conversations that close at the same time."""
        return await self._batch(request, count, count)

    async def _batch(self, request: dict[str, Any], count: int, group_size: int) -> dict[str, Any]:
        size, data = request["size"], load_data(request["data_folder"])
        if size > SMALL:
            return await self._measure(self._extractors[size], data, size, count, group_size)
        self._fresh_count += 1
        folder = Path(request["folder"]) / f"fresh{self._fresh_count}"
        self._conversations_used[size] = 0
        extractor = await self._open_extractor(folder, data, size)
        try:
            await extractor.fill(data.known[size])
            return await self._measure(extractor, data, size, count, group_size)
        finally:
            await extractor.close()
            shutil.rmtree(folder)

    async def _measure(
        self, extractor: MemoryExtractor, data: ExtractionData, size: int, count: int, group_size: int
    ) -> dict[str, Any]:
        start = self._conversations_used.get(size, 0)
        self._conversations_used[size] = start + WARM_UP_COUNT + count
        conversations = data.conversations[size][start : self._conversations_used[size]]
        expect("conversations left", len(conversations), WARM_UP_COUNT + count)
        stored = [await extractor.store(conversation) for conversation in conversations]
        for each in stored[:WARM_UP_COUNT]:
            await extractor.extract([each])
        return await _time_extraction(extractor, stored[WARM_UP_COUNT:], group_size)

    async def _open_extractor(self, folder: Path, data: ExtractionData, size: int) -> MemoryExtractor:
        extractor = self._create_extractor()
        await extractor.open(_create_folder(folder), data, size)
        return extractor


def _create_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def _time_extraction(extractor: MemoryExtractor, conversations: Sequence[Any], group_size: int) -> dict[str, Any]:
    calls_before = extractor.model_calls
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(conversations), group_size):
        await extractor.extract(conversations[start : start + group_size])
    await protocol.settle()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    calls = (extractor.model_calls - calls_before) / len(conversations)
    outcomes = [await extractor.check(each) for each in conversations]
    fact_outcomes = {name: sum(each[name] for each in outcomes) / len(conversations) for name in outcomes[0]}
    return {
        "cpu_ms": 1000 * cpu / len(conversations),
        "wall_ms": 1000 * wall / len(conversations),
        "calls": calls,
        "fact_outcomes": fact_outcomes,
    }


Batch = Callable[[dict[str, Any], int], Awaitable[dict[str, Any]]]
"""Measures the given number of operations."""


def serve(
    create_extractor: Callable[[], MemoryExtractor],
    packages: Sequence[str],
    extra_batches: dict[str, Batch] | None = None,
) -> None:
    """Answer requests to fill and to extract, and those in `extra_batches`."""
    extraction_batches = ExtractionBatches(create_extractor)
    batches: dict[str, Batch] = {
        "extract": extraction_batches.extract,
        "together": extraction_batches.together,
        **(extra_batches or {}),
    }

    async def handle_request(request: dict[str, Any]) -> dict[str, Any]:
        if request["kind"] == "fill":
            return await extraction_batches.fill(request)
        return await batches[request["kind"]](request, request["count"])

    protocol.answer_requests(handle_request, ["fill", *batches], packages)


async def wait_for_background(seconds: float) -> None:
    """Wait for background work to finish; waiting costs no CPU."""
    await asyncio.sleep(seconds)
