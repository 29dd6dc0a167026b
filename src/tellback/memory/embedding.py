"""Vectors for atoms: computed when an atom is written, and backfilled after a failure or a change of embedder."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tellback.embed import Embedder
from tellback.errors import EmbeddingError, NotFoundError
from tellback.runtime import Runtime
from tellback.stores import AtomChange, AtomDraft, MemoryStore, Replacement
from tellback.types.access import Scope

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ChangeT = TypeVar("ChangeT", bound=AtomChange)

log = logging.getLogger("tellback")

BATCH_SIZE = 256
MAX_FAILURES = 16
"""After this many failures in a row, the embedder itself is treated as failing, not single texts."""

BACKOFF_SECONDS = 60.0
"""After a failure, a space's texts are not sent to the embedder again for this long."""


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """How many texts were embedded, and how many the embedder rejected."""

    embedded: int = 0
    refused: int = 0

    def __add__(self, other: BackfillResult) -> BackfillResult:
        return BackfillResult(self.embedded + other.embedded, self.refused + other.refused)


class EmbeddingService:
    """Computes the vectors of one store with one embedder.

    If the embedder fails, no data is lost: new atoms are stored without a vector for now, and queries are ranked by
    their words.
    """

    def __init__(self, runtime: Runtime, embedder: Embedder | None) -> None:
        self._runtime = runtime
        self._embedder = embedder
        self._running: set[tuple[Scope, str]] = set()
        self._paused_until: dict[tuple[Scope, str], float] = {}
        self._refused_texts: set[tuple[str, int]] = set()

    @property
    def name(self) -> str:
        """The name under which its vectors are stored. Without an embedder it is empty, and no vector has an empty
        name."""
        return "" if self._embedder is None else self._embedder.name

    @property
    def is_quick(self) -> bool:
        """Whether it embeds locally within microseconds, so that a query can be embedded while a space is locked."""
        return hasattr(self._embedder, "vectors")

    async def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the vectors as they are stored, or None for texts that have none for now."""
        if self._embedder is None or not texts:
            return [None] * len(texts)
        try:
            return [*await self._encode(texts)]
        except EmbeddingError:
            log.warning("Stored %d texts without vectors: the embedder failed", len(texts), exc_info=True)
            return [None] * len(texts)

    async def embed_query(self, text: str) -> npt.NDArray[np.float32] | None:
        """Return the vector of a query, or None if the embedder fails or there is none."""
        if self._embedder is None:
            return None
        try:
            vector = (await self._embed([text], query=True))[0]
        except EmbeddingError:
            log.warning("Ranking a query by its words alone: the embedder failed", exc_info=True)
            return None
        return vector if vector.any() else None

    def schedule_backfill(self, scope: Scope, space_id: str) -> None:
        """Embed texts without vectors in the background, unless a backfill is running or failed recently."""
        if self._embedder is None or not self._runtime.worker or (scope, space_id) in self._running:
            return
        if asyncio.get_running_loop().time() < self._paused_until.get((scope, space_id), 0.0):
            return
        self._running.add((scope, space_id))
        self._runtime.jobs.start(self._backfill_in_background(scope, space_id), f"embed {space_id}")

    async def backfill(
        self, scope: Scope, space_id: str, on_progress: Callable[[int], Any] | None = None
    ) -> BackfillResult:
        """Embed texts that have no vector by this embedder, the newest first.

        A text that the embedder rejects stays without a vector. Raises `EmbeddingError` if the embedder seems to fail
        for all texts.
        """
        result, before = BackfillResult(), None
        while self._embedder is not None:
            found = await self._runtime.store.memories.atoms_without_vector(
                scope, space_id, embedder=self.name, before=before, limit=BATCH_SIZE
            )
            if not found:
                break
            try:
                result += await self._backfill_batch(scope, space_id, found, on_progress or (lambda count: None))
            except NotFoundError:  # the space was deleted meanwhile
                break
            before = found[-1][0]
        return result

    async def backfill_all(
        self, on_progress: Callable[[int], Any] | None = None, *, forget_others: bool = False
    ) -> int:
        """Embed texts without vectors, of every user; with `forget_others`, then delete the vectors of other embedders.

        Return the number of embedded texts. Raises `EmbeddingError` at the end if the embedder rejected some texts, and
        immediately if it keeps failing.
        """
        result, failed = BackfillResult(), 0
        async for scope, space_id in iterate_spaces(self._runtime.store.memories):
            try:
                result += await self.backfill(scope, space_id, on_progress)
            except EmbeddingError as error:
                if error.retryable or not result.embedded:
                    raise
                failed += 1
            if result.refused >= MAX_FAILURES and not result.embedded:
                break  # the embedder keeps failing
        if result.refused or failed:
            spaces = f", and nearly all texts of {failed} spaces" if failed else ""
            raise EmbeddingError(
                f"The embedder {self.name!r} rejected {result.refused} texts{spaces}. Recall finds them by their words"
                f" alone. {result.embedded} others were embedded."
            )
        if forget_others:
            async for scope, space_id in iterate_spaces(self._runtime.store.memories):
                with contextlib.suppress(NotFoundError):  # the space was deleted meanwhile
                    await self._runtime.store.memories.delete_other_vectors(scope, space_id, embedder=self.name)
        return result.embedded

    async def close(self) -> None:
        if self._embedder is not None:
            await self._embedder.close()

    async def _backfill_in_background(self, scope: Scope, space_id: str) -> None:
        should_pause = True  # also if the store fails: a read-only one would fail at every recall
        try:
            result = await self.backfill(scope, space_id)
            should_pause = result.refused > 0
        finally:
            self._running.discard((scope, space_id))
            self._paused_until.pop((scope, space_id), None)
            if should_pause:
                self._paused_until[scope, space_id] = asyncio.get_running_loop().time() + BACKOFF_SECONDS

    async def _backfill_batch(
        self, scope: Scope, space_id: str, found: Sequence[tuple[int, str]], on_progress: Callable[[int], Any]
    ) -> BackfillResult:
        """Embed texts together and store their vectors immediately. If a batch is rejected, split it in halves."""
        result, failures, chunks = BackfillResult(), 0, deque([found])
        while chunks:  # the largest first, so that most texts have vectors before the rejected one is isolated
            chunk = chunks.popleft()
            try:
                vectors = await self._encode([text for _, text in chunk])
            except EmbeddingError as error:
                failures += 1
                if error.retryable or (failures >= MAX_FAILURES and not result.embedded):
                    raise
                if len(chunk) == 1:
                    result += BackfillResult(refused=1)
                    self._log_refused(space_id, chunk[0][0], error)
                else:
                    middle = len(chunk) // 2
                    chunks += chunk[:middle], chunk[middle:]
                continue
            rows = [(seq, vector) for (seq, _), vector in zip(chunk, vectors, strict=True)]
            await self._runtime.store.memories.save_vectors(scope, space_id, self.name, rows, now=self._runtime.clock())
            result += BackfillResult(embedded=len(rows))
            on_progress(len(rows))
        return result

    def _log_refused(self, space_id: str, seq: int, error: EmbeddingError) -> None:
        """Log a rejected text once."""
        if (space_id, seq) not in self._refused_texts:
            self._refused_texts.add((space_id, seq))
            log.warning(
                "The embedder rejected a text of space %s, which stays without a vector", space_id, exc_info=error
            )

    async def _encode(self, texts: Sequence[str]) -> list[bytes]:
        from tellback.memory.recall.tokenizer import split_speaker

        vectors = await self._embed([split_speaker(text)[1] for text in texts])
        return [vector.tobytes() for vector in vectors.astype("<f2")]

    async def _embed(self, texts: Sequence[str], *, query: bool = False) -> npt.NDArray[np.float32]:
        """Embed texts. If a custom embedder returns anything but vectors, raise `EmbeddingError`."""
        from tellback.embed.vectors import validate_vectors

        assert self._embedder is not None
        return validate_vectors(await self._embedder.embed(texts, query=query), len(texts), self.name)


async def iterate_spaces(
    memories: MemoryStore, changed_since: datetime | None = None
) -> AsyncIterator[tuple[Scope, str]]:
    """Yield the spaces of all users, or those that changed since a time."""
    after = ""
    while found := await memories.all_spaces(after=after, limit=BATCH_SIZE, changed_since=changed_since):
        for each in found:
            yield each
        after = found[-1][1]


async def embed_changes(embedding: EmbeddingService, changes: Sequence[ChangeT]) -> tuple[ChangeT, ...]:
    """Return the changes with the vectors of new atoms, if the embedder can make them now."""
    drafts = [change.draft if isinstance(change, Replacement) else change for change in changes]
    texts = list(dict.fromkeys(draft.text for draft in drafts if isinstance(draft, AtomDraft)))
    vectors = dict(zip(texts, await embedding.encode(texts), strict=True))

    def embed(change: Any) -> Any:
        if isinstance(change, Replacement):
            return replace(change, draft=embed(change.draft))
        vector = vectors[change.text] if isinstance(change, AtomDraft) else None
        return change if vector is None else replace(change, embedder=embedding.name, vector=vector)

    return tuple(map(embed, changes))
