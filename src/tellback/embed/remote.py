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
from tellback.chat.providers.attempts import RetryAttempts
from tellback.chat.providers.base import ProviderModel
from tellback.chat.providers.failures import unreadable_response_error
from tellback.chat.providers.pace import IdleTimeout
from tellback.embed.vectors import Vectors, normalize_rows, to_unit_vectors, validate_texts
from tellback.errors import ConfigurationError, EmbeddingError, ProviderError

MAX_CONCURRENT_REQUESTS = 4

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
class BatchLimits:
    """What one request may hold. A token is at least one byte, so counting bytes never counts too few tokens."""

    max_texts: int
    max_bytes: int
    max_text_bytes: int


class ProviderEmbedder:
    """Embeds by a provider's API, through its own SDK.

    `dimensions` is the vectors' length: needed for a model that is not known here, and a wish for one that can make
    shorter ones. `config` goes into every request as it is. `timeout`, `retries` and `client` are those of the
    provider's chat models. A text too long for the model is embedded in pieces, and gets their mean.
    """

    prefix = ""
    limits = BatchLimits(max_texts=100, max_bytes=100_000, max_text_bytes=2_000)
    model_dimensions: Mapping[str, int] = {}
    """The models known by name, and how long their vectors are."""
    shortenable_prefixes: tuple[str, ...] = ()
    """How the names of models begin that make shorter vectors when asked to."""

    def __init__(self, model: ProviderModel, dimensions: int | None) -> None:
        self._model = model
        known_dimensions = self.model_dimensions.get(self._base_model_name())
        if dimensions is None and known_dimensions is None:
            raise ConfigurationError(
                f"How long are the vectors of {model.model!r}? Pass dimensions=... to {type(self).__name__}."
                f" Known without: {', '.join(self.model_dimensions)}."
            )
        if dimensions is not None and (not isinstance(dimensions, int) or dimensions < 1):
            raise ConfigurationError(f"dimensions is a number above 0, not {dimensions!r}.")
        requested = dimensions if dimensions != known_dimensions else None
        if requested and known_dimensions and not self._can_shorten():
            raise ConfigurationError(
                f"The vectors of {model.model!r} have {known_dimensions} dimensions, not {dimensions}."
            )
        if requested and known_dimensions and requested > known_dimensions:
            raise ConfigurationError(
                f"The vectors of {model.model!r} have at most {known_dimensions} dimensions, not {dimensions}."
            )
        self.dimensions: int = dimensions or known_dimensions or 0
        self._requested_dimensions = requested if self._can_shorten() else None

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
        texts = [_SURROGATES.sub("\ufffd", text) for text in validate_texts(texts)]
        pieces = {text: list(split_text(text, self.limits.max_text_bytes)) for text in texts if text.strip()}
        distinct = list(dict.fromkeys(piece for parts in pieces.values() for piece in parts))
        rows = await self._embed_texts(distinct, query)
        row_by_piece = {piece: index for index, piece in enumerate(distinct)}
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for index, text in enumerate(texts):
            for piece in pieces.get(text, ()):
                vectors[index] += rows[row_by_piece[piece]] * len(piece)
        return normalize_rows(vectors)

    async def close(self) -> None:
        """Close this event loop's connections, unless the client was passed in."""
        await self._model.aclose()

    # What an adapter supplies.

    async def _request(self, texts: list[str], query: bool, pace: IdleTimeout) -> Any:
        """One vector for each of the texts, in their order, in whatever shape numpy can read."""
        raise NotImplementedError

    def _base_model_name(self) -> str:
        return self._model.model

    # The rest is the same for all.

    def _can_shorten(self) -> bool:
        return self._base_model_name().startswith(self.shortenable_prefixes) if self.shortenable_prefixes else False

    async def _embed_texts(self, texts: list[str], query: bool) -> Vectors:
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        semaphore = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

        async def fill(start: int, end: int) -> None:
            async with semaphore:
                with telemetry.embedding_span(self.model, self._model.provider, self.dimensions, end - start):
                    rows[start:end] = await self._embed_batch(texts[start:end], query)

        try:
            async with asyncio.TaskGroup() as group:
                for start, end in split_batches(texts, self.limits):
                    group.create_task(fill(start, end))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return rows

    async def _embed_batch(self, texts: list[str], query: bool) -> Vectors:
        attempts = RetryAttempts((self.model,), self._model.retries, self._model._provider_error)
        while await attempts.next_target() is not None:
            try:
                pace = IdleTimeout(self._model.provider, self.model, self._model.timeout)
                return self._validate_response(await self._request(texts, query, pace), len(texts))
            except Exception as error:
                if not attempts.record_failure(error):
                    raise
        failure = attempts.final_error()
        raise EmbeddingError(str(failure), retryable=failure.retryable) from failure

    def _validate_response(self, rows: Any, count: int) -> Vectors:
        vectors = to_unit_vectors(rows, count, f"{self._model.provider} ({self.model})")
        if vectors.shape[1] != self.dimensions:
            raise EmbeddingError(
                f"{self._model.provider} gave vectors of {vectors.shape[1]} dimensions for {self.model}, not of"
                f" {self.dimensions}: pass dimensions={vectors.shape[1]}."
            )
        return vectors

    def _unreadable_response(self, problem: str) -> ProviderError:
        return unreadable_response_error(self._model.provider, self.model, problem)


def split_batches(texts: Sequence[str], limits: BatchLimits) -> Iterator[tuple[int, int]]:
    """Where to cut the texts into requests: start and end of each.

    >>> list(split_batches(["aa", "bb", "cc", "dddd", "e"], BatchLimits(max_texts=2, max_bytes=5, max_text_bytes=5)))
    [(0, 2), (2, 3), (3, 5)]
    """
    start = size = 0
    for index, text in enumerate(texts):
        length = len(text.encode())
        if index > start and (index - start >= limits.max_texts or size + length > limits.max_bytes):
            yield start, index
            start, size = index, 0
        size += length
    if start < len(texts):
        yield start, len(texts)


def split_text(text: str, limit: int) -> Iterator[str]:
    """A text in pieces of at most `limit` bytes, between words where it can be.

    >>> list(split_text("one two three", 8))
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
