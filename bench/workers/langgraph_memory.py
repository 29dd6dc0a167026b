"""LangGraph's stores with a vector index: `search` and `put` in a user's namespace."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The store needs a SQLite that can load extensions.
import pysqlite3

sys.modules["sqlite3"] = pysqlite3

import memory_batches  # noqa: E402
from langgraph.store.base import PutOp  # noqa: E402
from langgraph.store.memory import InMemoryStore  # noqa: E402
from langgraph.store.sqlite import SqliteStore  # noqa: E402
from memory_batches import HITS, MemoryData  # noqa: E402

DIMENSIONS = 256
STORE = sys.argv[1]
BATCH = 100
"""Larger batches would exceed SQLite's limit for one statement."""


class MemoryLibrary:
    async def open(self, folder: Path, data: MemoryData) -> None:
        def embed(texts: Sequence[str]) -> list[list[float]]:
            return [data.vector(text) for text in texts]

        self._count = 0
        # The two stores use different names for this setting.
        index: Any = {"dims": DIMENSIONS, "embed": embed, "fields": ["text"], "text_fields": ["text"]}
        if STORE == "InMemoryStore":
            self._store: Any = InMemoryStore(index=index)
            return
        connection = pysqlite3.connect(str(folder / "store.db"), check_same_thread=False, isolation_level=None)
        self._store = SqliteStore(connection, index=index)
        self._store.setup()

    async def fill(self, user: str, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            self._store.batch([PutOp(("memories", user), self._key(), {"text": text}) for text in part])

    async def recall(self, user: str, question: str) -> Any:
        return self._store.search(("memories", user), query=question, limit=HITS)

    def hits(self, recalled: Any) -> list[tuple[str, str]]:
        return [(item.namespace[-1], item.value["text"]) for item in recalled]

    async def add(self, user: str, text: str) -> None:
        self._store.put(("memories", user), self._key(), {"text": text})

    def _key(self) -> str:
        self._count += 1
        return f"memory-{self._count}"


if __name__ == "__main__":
    memory_batches.serve(
        MemoryLibrary, ["langgraph", "langgraph-checkpoint-sqlite", "sqlite-vec"], memory_batches.no_extra_batches
    )
