"""The memory engine of one store: embedding, cached spaces, recall and extraction, shared by all users' handles."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tellback.embed import Embedder
from tellback.memory.embedding import EmbeddingService
from tellback.memory.extraction.extractors import ExtractorLike
from tellback.memory.extraction.service import ExtractionService
from tellback.memory.memory import Memory
from tellback.memory.patterns import PatternMiner, PatternMining
from tellback.memory.recall_service import RecallService
from tellback.memory.space_view import SpaceCache, SpaceView
from tellback.runtime import Runtime
from tellback.types.access import Scope

if TYPE_CHECKING:
    from tellback.memory.recall.index import WordVectors


class MemoryEngine:
    """The embedder, and the cached spaces of this process."""

    def __init__(
        self,
        runtime: Runtime,
        embedder: Embedder | None,
        extractor: ExtractorLike,
        max_cache_bytes: int,
        max_cached_atoms: int,
    ) -> None:
        self._runtime = runtime
        self.embedding = EmbeddingService(runtime, embedder)
        # Words are compared by the bundled vectors for any embedder, and by equality without one.
        self._word_vectors: WordVectors | None = None
        if embedder is not None:
            from tellback.embed.static import StaticEmbedder

            self._word_vectors = StaticEmbedder()
        # The static embedder's first dimensions carry the most information. Others may have any order.
        new_view = partial(SpaceView, self._word_vectors, ordered=self.embedding.is_quick)
        self.space_cache = SpaceCache(
            runtime.store.memories, self.embedding.name, new_view, max_cache_bytes, max_cached_atoms
        )
        self._recall = RecallService(self.space_cache, self.embedding)
        self.extraction = ExtractionService(runtime, self.embedding, self._recall, extractor)

    def for_user(self, scope: Scope) -> Memory:
        return Memory(self._runtime, scope, self.embedding, self._recall, self.extraction)

    def pattern_miner(self, options: PatternMining) -> PatternMiner:
        return PatternMiner(self._runtime, self.embedding, options)

    async def warm_up(self) -> None:
        """Load the embedder and the word tables."""
        await self.embedding.embed_query("yesterday")
        if self._word_vectors is not None:
            self._word_vectors.words(["word"])

    async def close(self) -> None:
        self.space_cache.clear()
        await self.embedding.close()
