"""Vectors for what is remembered: made when it is written, and made again when the embedder has changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tellback.conversations.runtime import Runtime
from tellback.embed import Embedder
from tellback.errors import EmbeddingError, NotFoundError
from tellback.types.scope import Scope

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

log = logging.getLogger("tellback")

BATCH = 256
MOST_FAILURES = 16
"""So many failures with nothing embedded in between are not about single texts."""

REST_SECONDS = 60.0
"""After a failure, a space's texts are not sent to the embedder again for so long."""


@dataclass(frozen=True, slots=True)
class Filled:
    """How many texts were embedded, and how many the embedder refused."""

    embedded: int = 0
    refused: int = 0

    def __add__(self, more: Filled) -> Filled:
        return Filled(self.embedded + more.embedded, self.refused + more.refused)


class Embedding:
    """One embedder at work on one store.

    Nothing is lost when it fails: what is written then has no vector yet, what is asked then is ranked by its words.
    """

    def __init__(self, runtime: Runtime, embedder: Embedder | None) -> None:
        self._runtime = runtime
        self._embedder = embedder
        self._filling: set[tuple[Scope, str]] = set()
        self._resting: dict[tuple[Scope, str], float] = {}
        self._refused: set[tuple[str, int]] = set()

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
            vector = (await self._vectors([text], query=True))[0]
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

    async def fill(self, scope: Scope, space_id: str, done: Callable[[int], Any] | None = None) -> Filled:
        """Embed what has no vector by this embedder, the newest first.

        A text that the embedder refuses is left without one. Raises `EmbeddingError` if it seems to fail for them all.
        """
        filled, before = Filled(), None
        while self._embedder is not None:
            found = await self._runtime.store.memories.to_embed(
                scope, space_id, embedder=self.name, before=before, limit=BATCH
            )
            if not found:
                break
            try:
                filled += await self._fill_batch(scope, space_id, found, done or _ignore)
            except NotFoundError:  # the space was deleted meanwhile
                break
            before = found[-1][0]
        return filled

    async def fill_all(self, done: Callable[[int], Any] | None = None, *, forget_others: bool = False) -> int:
        """Embed what has no vector, of every user; then, if asked for, delete other embedders' vectors.

        Raises `EmbeddingError` when all else is done if the embedder refused some texts, and at once if it fails for a
        while, or for all.
        """
        filled, failed = Filled(), 0
        async for scope, space_id in self._spaces():
            try:
                filled += await self.fill(scope, space_id, done)
            except EmbeddingError as error:
                if error.retryable or not filled.embedded:
                    raise
                failed += 1
            if filled.refused >= MOST_FAILURES and not filled.embedded:
                break  # no use in going on
        if filled.refused or failed:
            spaces = f", and nearly all of {failed} spaces" if failed else ""
            raise EmbeddingError(
                f"{self.name} refused {filled.refused} texts{spaces}, which are found by their words alone."
                f" {filled.embedded} others were embedded."
            )
        if forget_others:
            async for scope, space_id in self._spaces():
                with contextlib.suppress(NotFoundError):  # the space was deleted meanwhile
                    await self._runtime.store.memories.forget_vectors(scope, space_id, but=self.name)
        return filled.embedded

    async def _spaces(self) -> AsyncIterator[tuple[Scope, str]]:
        after = ""
        while found := await self._runtime.store.memories.all_spaces(after=after, limit=BATCH):
            for each in found:
                yield each
            after = found[-1][1]

    async def close(self) -> None:
        """Let go of what the embedder holds."""
        if self._embedder is not None:
            await self._embedder.close()

    async def _fill_quietly(self, scope: Scope, space_id: str) -> None:
        rests = True  # also after a failure of the store: a read-only one would fail at every recall
        try:
            filled = await self.fill(scope, space_id)
            rests = filled.refused > 0
        finally:
            self._filling.discard((scope, space_id))
            self._resting.pop((scope, space_id), None)
            if rests:
                self._resting[scope, space_id] = asyncio.get_running_loop().time() + REST_SECONDS

    async def _fill_batch(
        self, scope: Scope, space_id: str, found: Sequence[tuple[int, str]], done: Callable[[int], Any]
    ) -> Filled:
        """Embed texts together; those that are refused together, by halves. What was made is kept at once."""
        filled, failures, pieces = Filled(), 0, deque([found])
        while pieces:  # the largest first: most texts have their vectors before the odd one is found
            piece = pieces.popleft()
            try:
                vectors = await self._encoded([text for _, text in piece])
            except EmbeddingError as error:
                failures += 1
                if error.retryable or (failures >= MOST_FAILURES and not filled.embedded):
                    raise
                if len(piece) == 1:
                    filled += Filled(refused=1)
                    self._say_refused(space_id, piece[0][0], error)
                else:
                    middle = len(piece) // 2
                    pieces += piece[:middle], piece[middle:]
                continue
            made = [(seq, vector) for (seq, _), vector in zip(piece, vectors, strict=True)]
            await self._runtime.store.memories.save_vectors(scope, space_id, self.name, made, now=self._runtime.clock())
            filled += Filled(embedded=len(made))
            done(len(made))
        return filled

    def _say_refused(self, space_id: str, seq: int, error: EmbeddingError) -> None:
        """Once for each text."""
        if (space_id, seq) not in self._refused:
            self._refused.add((space_id, seq))
            log.warning("a text of %s has no vector: the embedder refused it", space_id, exc_info=error)

    async def _encoded(self, texts: Sequence[str]) -> list[bytes]:
        from tellback.memory.recall.entry import split_speaker

        vectors = await self._vectors([split_speaker(text)[1] for text in texts])
        return [vector.tobytes() for vector in vectors.astype("<f2")]

    async def _vectors(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]:
        """An embedder of somebody else's may give anything: what is not vectors is its `EmbeddingError`."""
        from tellback.embed.vectors import checked_vectors

        assert self._embedder is not None
        return checked_vectors(await self._embedder.embed(texts, query=query), len(texts), self.name)


def _ignore(count: int) -> None:
    """Nobody asked."""
