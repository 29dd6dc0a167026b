"""Vectors for what is remembered: made when it is written, and made again when the embedder has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from recollect.conversations.runtime import Runtime
from recollect.embed import Embedder
from recollect.errors import EmbeddingError, NotFoundError
from recollect.types.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

log = logging.getLogger("recollect")

BATCH = 256
REST_SECONDS = 60.0
"""After a failure, a space's texts are not sent to the embedder again for so long."""


class Embedding:
    """One embedder at work on one store.

    Nothing is lost when it fails: what is written then has no vector yet, what is asked then is ranked by its words.
    """

    def __init__(self, runtime: Runtime, embedder: Embedder | None) -> None:
        self._runtime = runtime
        self._embedder = embedder
        self._filling: set[tuple[Scope, str]] = set()
        self._resting: dict[tuple[Scope, str], float] = {}

    @property
    def name(self) -> str:
        """What its vectors are stored under; nothing has an empty name."""
        return "" if self._embedder is None else self._embedder.name

    @property
    def is_quick(self) -> bool:
        """Whether it embeds within microseconds, here, so that a question can be embedded while a space is held."""
        return hasattr(self._embedder, "vectors")

    async def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """Vectors as they are stored, or None where there are none for now."""
        if self._embedder is None or not texts:
            return [None] * len(texts)
        try:
            return [*await self._encoded(texts)]
        except EmbeddingError:
            log.warning("%d texts are stored without vectors for now", len(texts), exc_info=True)
            return [None] * len(texts)

    async def question(self, text: str) -> npt.NDArray[np.float32] | None:
        """The vector of what is asked, or None if there is none."""
        if self._embedder is None:
            return None
        try:
            vector = (await self._embedder.embed([text], query=True))[0]
        except EmbeddingError:
            log.warning("what was asked is compared by its words alone", exc_info=True)
            return None
        return vector if vector.any() else None

    def consider(self, scope: Scope, space_id: str) -> None:
        """Embed what is not embedded yet, in the background, unless that is under way or failed just now."""
        if self._embedder is None or not self._runtime.worker or (scope, space_id) in self._filling:
            return
        if asyncio.get_running_loop().time() < self._resting.get((scope, space_id), 0.0):
            return
        self._filling.add((scope, space_id))
        self._runtime.jobs.start(self._fill_quietly(scope, space_id), f"embed {space_id}")

    async def fill(self, scope: Scope, space_id: str, done: Callable[[int], Any] | None = None) -> int:
        """Embed what has no vector by this embedder, the newest first; gives how many there were."""
        if self._embedder is None:
            return 0
        memories, count, before = self._runtime.store.memories, 0, None
        while True:
            found = await memories.to_embed(scope, space_id, embedder=self.name, before=before, limit=BATCH)
            if not found:
                return count
            vectors = await self._encoded([text for _, text in found])
            made = [(seq, vector) for (seq, _), vector in zip(found, vectors, strict=True)]
            try:
                await memories.save_vectors(scope, space_id, self.name, made, now=self._runtime.clock())
            except NotFoundError:  # the space was deleted meanwhile
                return count
            count, before = count + len(made), found[-1][0]
            if done is not None:
                done(len(made))

    async def fill_all(self, done: Callable[[int], Any] | None = None) -> int:
        """Embed what has no vector, of every user."""
        count, after = 0, ""
        while found := await self._runtime.store.memories.all_spaces(after=after, limit=BATCH):
            for scope, space_id in found:
                count += await self.fill(scope, space_id, done)
            after = found[-1][1]
        return count

    async def close(self) -> None:
        """Let go of what the embedder holds."""
        if self._embedder is not None:
            await self._embedder.close()

    async def _fill_quietly(self, scope: Scope, space_id: str) -> None:
        try:
            await self.fill(scope, space_id)
            self._resting.pop((scope, space_id), None)
        except EmbeddingError:
            self._resting[scope, space_id] = asyncio.get_running_loop().time() + REST_SECONDS
            raise
        finally:
            self._filling.discard((scope, space_id))

    async def _encoded(self, texts: Sequence[str]) -> list[bytes]:
        from recollect.memory.recall.entry import split_speaker

        assert self._embedder is not None
        vectors = await self._embedder.embed([split_speaker(text)[1] for text in texts])
        return [vector.tobytes() for vector in vectors.astype("<f2")]
