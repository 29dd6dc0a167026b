"""mem0 on a local vector store: `Memory.add` with inference by an instant fake model; filled through the vector store.

mem0 only adds: it looks up ten memories similar to the whole conversation, calls a model once, drops facts whose text
equals one of those ten, and adds the rest. It replaces nothing.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mem0_vectors import DIMENSIONS, STORE, PrecomputedEmbedder  # isort: skip
import extraction_batches
from extraction_batches import USER, ExtractionData
from mem0 import Memory
from mem0.utils.factory import EmbedderFactory, LlmFactory


class InstantModel:
    """Returns the facts of the conversation that is being added."""

    def __init__(self) -> None:
        self.call_count = 0
        self.answer = ""

    def generate_response(self, messages: Any, **options: Any) -> str:
        self.call_count += 1
        return self.answer


class MemoryExtractor:
    async def open(self, folder: Path, data: ExtractionData, size: int) -> None:
        config: dict[str, Any] = {
            "collection_name": "memories",
            "path": str(folder / STORE),
            "embedding_model_dims": DIMENSIONS,
        }
        config |= {"on_disk": True} if STORE == "qdrant" else {"distance_strategy": "cosine"}
        self._data, self._model = data, InstantModel()
        EmbedderFactory.create = staticmethod(lambda *_: PrecomputedEmbedder(data))
        LlmFactory.create = staticmethod(lambda *_, **__: self._model)
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": STORE, "config": config},
                "llm": {"provider": "openai", "config": {"api_key": "unused"}},
                "history_db_path": str(folder / "history.db"),
            }
        )

    @property
    def model_calls(self) -> int:
        return self._model.call_count

    async def fill(self, known: Sequence[dict[str, str]]) -> None:
        now = datetime.now(UTC).isoformat()
        texts = [fact["text"] for fact in known]
        payloads = [
            {
                "user_id": USER,
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

    async def store(self, conversation: dict[str, Any]) -> dict[str, Any]:
        messages = [
            {"role": role, "content": text}
            for turn in conversation["turns"]
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        memory = [{"id": str(n), "text": text, "attributed_to": "user"} for n, text in enumerate(conversation["facts"])]
        return {"messages": messages, "facts": conversation["facts"], "answer": json.dumps({"memory": memory})}

    async def extract(self, conversations: Sequence[dict[str, Any]]) -> None:
        for conversation in conversations:
            self._model.answer = conversation["answer"]
            conversation["added"] = self._memory.add(conversation["messages"], user_id=USER, infer=True)["results"]

    async def check(self, conversation: dict[str, Any]) -> dict[str, int]:
        """Check that all facts were added, except the repeated one, which mem0 may drop."""
        texts = [result["memory"] for result in conversation["added"]]
        facts = conversation["facts"]
        if texts not in (facts, [*facts[:2], *facts[3:]]):
            raise AssertionError(f"unexpected additions: got {texts!r:.200} of {facts!r:.200}")
        stored = {result["memory"]: self._memory.get(result["id"]) for result in conversation["added"]}
        if any(found is None or found["memory"] != text for text, found in stored.items()):
            raise AssertionError("an added memory is missing")
        return {"added": len(texts), "left_out": len(facts) - len(texts)}

    async def close(self) -> None:
        self._memory.close()
        client = getattr(self._memory.vector_store, "client", None)
        if client is not None:
            client.close()


if __name__ == "__main__":
    atexit.register(shutil.rmtree, os.environ["MEM0_DIR"], ignore_errors=True)
    extraction_batches.serve(MemoryExtractor, ["mem0ai", "qdrant-client", "faiss-cpu"])
