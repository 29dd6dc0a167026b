"""Chroma on disk: one collection, with the user in the metadata."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chromadb
import memory_batches
from chromadb.config import Settings
from memory_batches import HITS, MemoryData

BATCH = 1_000


class MemoryLibrary:
    async def open(self, folder: Path, data: MemoryData) -> None:
        self._data = data
        self._count = 0
        client = chromadb.PersistentClient(str(folder / "chroma"), Settings(anonymized_telemetry=False))
        self._collection = client.create_collection(
            "memories", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )

    async def fill(self, user: str, texts: Sequence[str]) -> None:
        for start in range(0, len(texts), BATCH):
            self._add(user, texts[start : start + BATCH])

    async def recall(self, user: str, question: str) -> Any:
        vectors: Any = [self._data.vector(question)]
        return self._collection.query(query_embeddings=vectors, n_results=HITS, where={"user": user})

    def hits(self, recalled: Any) -> list[tuple[str, str]]:
        users = [metadata["user"] for metadata in recalled["metadatas"][0]]
        return [*zip(users, recalled["documents"][0], strict=True)]

    async def add(self, user: str, text: str) -> None:
        self._add(user, [text])

    def _add(self, user: str, texts: Sequence[str]) -> None:
        vectors: Any = [self._data.vector(text) for text in texts]
        ids = [f"memory-{self._count + index}" for index in range(len(texts))]
        self._count += len(texts)
        metadatas: Any = [{"user": user} for _ in texts]
        self._collection.add(ids=ids, embeddings=vectors, documents=[*texts], metadatas=metadatas)


if __name__ == "__main__":
    memory_batches.serve(MemoryLibrary, ["chromadb"], memory_batches.no_extra_batches)
