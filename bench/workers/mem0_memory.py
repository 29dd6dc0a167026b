"""mem0 on a local vector store: `Memory.search`, and `Memory.add` without inference; filled through that store."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mem0_vectors import DIMENSIONS, STORE, PrecomputedEmbedder  # isort: skip
import memory_batches
from mem0 import Memory
from mem0.utils.factory import EmbedderFactory
from memory_batches import HITS, MemoryData


class MemoryLibrary:
    async def open(self, folder: Path, data: MemoryData) -> None:
        config: dict[str, Any] = {
            "collection_name": "memories",
            "path": str(folder / STORE),
            "embedding_model_dims": DIMENSIONS,
        }
        config |= {"on_disk": True} if STORE == "qdrant" else {"distance_strategy": "cosine"}
        EmbedderFactory.create = staticmethod(lambda *_: PrecomputedEmbedder(data))
        self._data = data
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": STORE, "config": config},
                "llm": {"provider": "openai", "config": {"api_key": "unused"}},
                "history_db_path": str(folder / "history.db"),
            }
        )

    async def fill(self, user: str, texts: Sequence[str]) -> None:
        now = datetime.now(UTC).isoformat()
        payloads = [
            {
                "user_id": user,
                "role": "user",
                "data": text,
                "hash": hashlib.md5(text.encode()).hexdigest(),
                "created_at": now,
                "updated_at": now,
                "text_lemmatized": text.lower(),
            }
            for text in texts
        ]
        self._memory.vector_store.insert(
            vectors=[self._data.vector(text) for text in texts],
            payloads=payloads,
            ids=[str(uuid.uuid4()) for _ in texts],
        )

    async def recall(self, user: str, question: str) -> Any:
        return self._memory.search(question, top_k=HITS, filters={"user_id": user}, threshold=0.0)

    def hits(self, recalled: Any) -> list[tuple[str, str]]:
        return [(hit["user_id"], hit["memory"]) for hit in recalled["results"]]

    async def add(self, user: str, text: str) -> None:
        self._memory.add(text, user_id=user, infer=False)


if __name__ == "__main__":
    atexit.register(shutil.rmtree, os.environ["MEM0_DIR"], ignore_errors=True)
    memory_batches.serve(MemoryLibrary, ["mem0ai", "qdrant-client", "faiss-cpu"], memory_batches.no_extra_batches)
