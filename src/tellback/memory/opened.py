"""Memory at work on one store: what all users' handles share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.conversations.runtime import Runtime
from tellback.embed import Embedder
from tellback.memory.embedding import Embedding
from tellback.memory.extraction.choice import ExtractorLike
from tellback.memory.extraction.service import Extractions
from tellback.memory.memory import Memory
from tellback.memory.mining import Miner
from tellback.memory.pattern_mining import PatternMining
from tellback.memory.recalling import Recall
from tellback.memory.views import SpaceViews
from tellback.types.scope import Scope

if TYPE_CHECKING:
    from tellback.memory.recall.index import WordVectors


class OpenedMemory:
    """The embedder, and the spaces held in this process."""

    def __init__(
        self, runtime: Runtime, embedder: Embedder | None, extractor: ExtractorLike, limit: int, most: int
    ) -> None:
        self._runtime = runtime
        self.embedding = Embedding(runtime, embedder)
        self._words = _words(embedder)
        # The static embedder's first dimensions say the most; others may have theirs in any order.
        memories, ordered = runtime.store.memories, self.embedding.is_quick
        self.views = SpaceViews(memories, self.embedding.name, self._words, limit, most, ordered=ordered)
        self._recall = Recall(self.views, self.embedding)
        self.extractions = Extractions(runtime, self.embedding, self._recall, extractor)

    def of(self, scope: Scope) -> Memory:
        """A user's memory."""
        return Memory(self._runtime, scope, self.embedding, self._recall, self.extractions)

    def miner(self, mining: PatternMining) -> Miner:
        """What looks for patterns."""
        return Miner(self._runtime, self.embedding, mining)

    async def warm_up(self) -> None:
        """Load the embedder and the tables of words."""
        await self.embedding.question("yesterday")
        if self._words is not None:
            self._words.words(["word"])

    async def close(self) -> None:
        """Forget what is held, and let go of the embedder."""
        self.views.clear()
        await self.embedding.close()


def _words(embedder: Embedder | None) -> WordVectors | None:
    """Words are compared by the bundled vectors, whichever embedder compares texts; without one, if equal."""
    if embedder is None:
        return None
    from tellback.embed.static import StaticEmbedder

    return StaticEmbedder()
