"""What embedders behind a provider's API share: batches, retries, long texts cut into pieces, answers checked.

The client, its key and how its SDK's exceptions read come from the provider's chat adapter.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from tellback import telemetry
from tellback.chat.providers.attempts import Attempts
from tellback.chat.providers.base import ProviderModel
from tellback.chat.providers.failures import unreadable
from tellback.chat.providers.pace import Pace
from tellback.embed.vectors import Vectors, as_texts, clean_vectors, unit_rows
from tellback.errors import ConfigurationError, EmbeddingError, ProviderError

REQUESTS_AT_ONCE = 4

_SURROGATES = re.compile(r"[\ud800-\udfff]")


class EmbedderOptions(TypedDict, total=False):
    """What every provider's embedder takes; `ProviderEmbedder` explains it."""

    api_key: str | None
    base_url: str | None
    client: Any
    config: Mapping[str, Any] | None
    timeout: float
    retries: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold. A token is at least one byte, so counting bytes never counts too few tokens."""

    texts: int
    bytes: int
    bytes_of_text: int


class ProviderEmbedder:
    """Embeds by a provider's API, through its own SDK.

    `dimensions` is the vectors' length: needed for a model that is not known here, and a wish for one that can make
    shorter ones. `config` goes into every request as it is. `timeout`, `retries` and `client` are those of the
    provider's chat models. A text too long for the model is embedded in pieces, and gets their mean.
    """

    prefix = ""
    limits = Limits(texts=100, bytes=100_000, bytes_of_text=2_000)
    sizes: Mapping[str, int] = {}
    """The models known by name, and how long their vectors are."""
    shortened: tuple[str, ...] = ()
    """How the names of models begin that make shorter vectors when asked to."""

    def __init__(self, model: ProviderModel, dimensions: int | None) -> None:
        self._model = model
        known = self.sizes.get(self._plain_name())
        if dimensions is None and known is None:
            raise ConfigurationError(
                f"How long are the vectors of {model.model!r}? Pass dimensions=... to {type(self).__name__}."
                f" Known without: {', '.join(self.sizes)}."
            )
        if dimensions is not None and (not isinstance(dimensions, int) or dimensions < 1):
            raise ConfigurationError(f"dimensions is a number above 0, not {dimensions!r}.")
        asked = dimensions if dimensions != known else None
        if asked and known and not self._shortens():
            raise ConfigurationError(f"The vectors of {model.model!r} have {known} dimensions, not {dimensions}.")
        if asked and known and asked > known:
            raise ConfigurationError(
                f"The vectors of {model.model!r} have at most {known} dimensions, not {dimensions}."
            )
        self.dimensions: int = dimensions or known or 0
        self._asked = asked if self._shortens() else None

    @property
    def model(self) -> str:
        """The model's name at its provider."""
        return self._model.model

    @property
    def name(self) -> str:
        """What its vectors are stored under."""
        return f"{self.prefix}/{self.model}-{self.dimensions}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, dimensions={self.dimensions})"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """The texts' vectors. Equal texts are sent once, blank ones never."""
        texts = [_SURROGATES.sub("\ufffd", text) for text in as_texts(texts)]
        pieces = {text: list(cut(text, self.limits.bytes_of_text)) for text in texts if text.strip()}
        distinct = list(dict.fromkeys(piece for parts in pieces.values() for piece in parts))
        rows = await self._rows(distinct, query)
        places = {piece: index for index, piece in enumerate(distinct)}
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for index, text in enumerate(texts):
            for piece in pieces.get(text, ()):
                vectors[index] += rows[places[piece]] * len(piece)
        return unit_rows(vectors)

    async def close(self) -> None:
        """Close this event loop's connections, unless the client was passed in."""
        await self._model.aclose()

    # What an adapter supplies.

    async def _request(self, texts: list[str], query: bool, pace: Pace) -> Any:
        """One vector for each of the texts, in their order, in whatever shape numpy can read."""
        raise NotImplementedError

    def _plain_name(self) -> str:
        return self._model.model

    # The rest is the same for all.

    def _shortens(self) -> bool:
        return self._plain_name().startswith(self.shortened) if self.shortened else False

    async def _rows(self, texts: list[str], query: bool) -> Vectors:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        free = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def fill(start: int, end: int) -> None:
            async with free:
                with telemetry.embedding_span(self.model, self._model.provider, self.dimensions, end - start):
                    rows[start:end] = await self._batch(texts[start:end], query)

        try:
            async with asyncio.TaskGroup() as group:
                for start, end in batches(texts, self.limits):
                    group.create_task(fill(start, end))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return rows

    async def _batch(self, texts: list[str], query: bool) -> Vectors:
        attempts = Attempts((self.model,), self._model.retries, self._model._provider_error)
        while await attempts.next() is not None:
            try:
                pace = Pace(self._model.provider, self.model, self._model.timeout)
                return self._checked(await self._request(texts, query, pace), len(texts))
            except Exception as error:
                if not attempts.failed(error):
                    raise
        failure = attempts.given_up()
        raise EmbeddingError(str(failure), retryable=failure.retryable) from failure

    def _checked(self, rows: Any, count: int) -> Vectors:
        vectors = clean_vectors(rows, count, f"{self._model.provider} ({self.model})")
        if vectors.shape[1] != self.dimensions:
            raise EmbeddingError(
                f"{self._model.provider} gave vectors of {vectors.shape[1]} dimensions for {self.model}, not of"
                f" {self.dimensions}: pass dimensions={vectors.shape[1]}."
            )
        return vectors

    def _unreadable(self, problem: str) -> ProviderError:
        return unreadable(self._model.provider, self.model, problem)


def batches(texts: Sequence[str], limits: Limits) -> Iterator[tuple[int, int]]:
    """Where to cut the texts into requests: start and end of each.

    >>> list(batches(["aa", "bb", "cc", "dddd", "e"], Limits(texts=2, bytes=5, bytes_of_text=5)))
    [(0, 2), (2, 3), (3, 5)]
    """
    start = size = 0
    for index, text in enumerate(texts):
        length = len(text.encode())
        if index > start and (index - start >= limits.texts or size + length > limits.bytes):
            yield start, index
            start, size = index, 0
        size += length
    if start < len(texts):
        yield start, len(texts)


def cut(text: str, limit: int) -> Iterator[str]:
    """A text in pieces of at most `limit` bytes, between words where it can be.

    >>> list(cut("one two three", 8))
    ['one two ', 'three']
    """
    data = text.encode()
    start = 0
    while len(data) - start > limit:
        end = data.rfind(b" ", start + limit // 2, start + limit) + 1
        if not end:
            end = start + limit
            while data[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
        yield data[start:end].decode()
        start = end
    yield data[start:].decode()
