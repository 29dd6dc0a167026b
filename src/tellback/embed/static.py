"""`StaticEmbedder`: the bundled embedder, which needs no download and no network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tellback.embed import weights
from tellback.embed.vectors import Vectors, validate_texts

MAX_INLINE_TEXTS = 256
MAX_INLINE_CHARACTERS = 50_000


class StaticEmbedder:
    """The default embedder: 256 dimensions, no download, no network, some microseconds for a text.

    The weights are loaded when first used, once in a process. It may be used from any thread.

    >>> vectors = StaticEmbedder().vectors(["I adopted a puppy.", "We got a dog.", "The bank is closed."])
    >>> bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    True
    """

    @property
    def name(self) -> str:
        """What its vectors are stored under."""
        return f"static/wordllama-l2-supercat-{weights.DIMENSIONS}"

    def __repr__(self) -> str:
        return "StaticEmbedder()"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """The texts' vectors; questions are embedded like anything else. Long work is done in a thread."""
        texts = validate_texts(texts)
        is_small = len(texts) <= MAX_INLINE_TEXTS and sum(map(len, texts)) <= MAX_INLINE_CHARACTERS
        if is_small and weights.weights_loaded():
            return weights.load_weights().vectors(texts)
        return await asyncio.to_thread(self.vectors, texts)

    async def close(self) -> None:
        """Nothing is held open; the weights stay for others in the process."""

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The same as `embed`, at once and in this thread."""
        return weights.load_weights().vectors(validate_texts(texts))

    def words(self, words: Sequence[str]) -> Vectors:
        """Vectors for comparing single words: without what all words have in common, of length 1, zero if unknown.

        >>> movie, film, cheese = StaticEmbedder().words(["movie", "film", "cheese"])
        >>> bool(movie @ film > 0.5 > movie @ cheese)
        True
        """
        return weights.load_weights().words(validate_texts(words))
