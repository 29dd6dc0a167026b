"""Helpers for tests of memory: a settable clock, an embedder that can fail, and short ways to read results."""

from __future__ import annotations

import asyncio
import math
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from tellback import Tellback
from tellback.embed.vectors import Vectors
from tellback.errors import EmbeddingError
from tellback.types.memory import Atom, RecallHit, RecallResult

DAY = timedelta(days=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Clock:
    """Returns the time that was set."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, time: timedelta = timedelta(minutes=1)) -> datetime:
        self.now += time
        return self.now


class HashEmbedder:
    """Embeds texts by the hashes of their words, so texts with the same words are similar. It can fail and wait, and
    counts calls."""

    def __init__(self, name: str = "hash/16", dimensions: int = 16) -> None:
        self.name = name
        self.dimensions = dimensions
        self.error: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.embedded: list[str] = []
        self.queries: list[str] = []

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        (self.queries if query else self.embedded).extend(texts)
        rows = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().replace(".", " ").split():
                row[zlib.crc32(f"{self.name} {word}".encode()) % self.dimensions] += 1
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.maximum(lengths, 1e-9), np.float32)

    async def close(self) -> None:
        """Do nothing: there are no resources to close."""


def embedding_error() -> EmbeddingError:
    return EmbeddingError("no vectors today")


def texts(found: RecallResult | Sequence[Atom]) -> list[str]:
    return [atom.text for atom in (found.atoms if isinstance(found, RecallResult) else found)]


async def recall_everywhere(memory: Any, space_id: str, query: str, entity: str | None = None, **wide: Any) -> set[str]:
    """Return the texts of all recall modes."""
    found: set[str] = set()
    for archived in (False, True):
        options = {"limit": 10_000, "include_archived": archived, **wide}
        found.update(texts(await memory.recall_by_topic(space_id, query, neighbours=5, **options)))
        hits = await memory.recall_by_topic(space_id, query, neighbours=5, **options)
        found.update(atom.text for hit in hits for atom in hit.context)
        for name in filter(None, (entity, query)):
            found.update(texts(await memory.recall_by_entity(space_id, name, **options)))
    for include_superseded in (False, True):
        for subject in ({}, {"query": query}, {"entity_id_or_name": entity or query}):
            entity_options = {key: value for key, value in wide.items() if key != "valid_at"}
            timeline = await memory.recall_timeline(
                space_id, limit=10_000, include_superseded=include_superseded, **subject, **entity_options
            )
            found.update(texts(timeline))
    return found


def assert_valid_result(result: RecallResult) -> None:
    """Check the invariants of every result."""
    ids = [hit.atom.id for hit in result]
    assert len(set(ids)) == len(ids)
    assert len(ids) <= result.total_candidates
    assert result.latency_ms >= 0
    for hit in result:
        assert 0 <= hit.score <= 1
        assert 0.1 <= hit.decay_weight <= 1
        assert hit.entity_match_bonus >= 1
        assert hit.atom not in hit.context
        assert_explained(hit)
    if result.mode == "BY_TOPIC":
        scores = [hit.score for hit in result]
        assert scores == sorted(scores, reverse=True)


def assert_explained(hit: RecallHit) -> None:
    log_odds = sum(hit.explain().values())
    assert math.isclose(hit.score, 1 / (1 + math.exp(-log_odds)), abs_tol=1e-5)


def assert_same_result(first: RecallResult, second: RecallResult) -> None:
    """Check that two results have the same atoms with the same scores, in the same order where scores differ."""
    first_hits, second_hits = ({hit.atom.id: hit for hit in result} for result in (first, second))
    assert first_hits.keys() == second_hits.keys()
    assert first.total_candidates == second.total_candidates
    for id, hit in first_hits.items():
        other = second_hits[id]
        assert hit.atom == other.atom
        assert math.isclose(hit.score, other.score, abs_tol=1e-5), (hit.explain(), other.explain())
        assert math.isclose(hit.decay_weight, other.decay_weight, abs_tol=1e-5)
        assert math.isclose(hit.entity_match_bonus, other.entity_match_bonus, abs_tol=1e-5)
        assert hit.context == other.context
    for rank, (first_hit, second_hit) in enumerate(zip(first, second, strict=True)):
        close = math.isclose(first_hit.score, second_hit.score, abs_tol=1e-5)
        assert first_hit.atom.id == second_hit.atom.id or (first.mode == "BY_TOPIC" and close), rank


async def count_events(tb: Tellback) -> int:
    return len(await tb.events.read(limit=100_000))
