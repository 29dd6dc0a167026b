"""mem0 with precomputed vectors. Import this module before mem0."""

from __future__ import annotations

import os
import sys
import tempfile

# mem0 writes a configuration file on import.
os.environ["MEM0_DIR"] = tempfile.mkdtemp(prefix="mem0-")

from mem0.configs.embeddings.base import BaseEmbedderConfig
from mem0.embeddings.base import EmbeddingBase
from vectors import Vectors

DIMENSIONS = 256
STORE = sys.argv[1]


class PrecomputedEmbedder(EmbeddingBase):  # type: ignore[misc]
    """An embedder that returns precomputed vectors."""

    def __init__(self, data: Vectors) -> None:
        super().__init__(BaseEmbedderConfig())
        self._data = data

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return self._data.vector(text)
