"""Embedders that call a provider's API: OpenAI, OpenRouter, compatible servers, Ollama and Gemini.

They share batching, retries, splitting of long texts and validation of responses. The client, its key and the mapping
of its SDK's exceptions come from the provider's chat adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from tellback import telemetry
from tellback.chat.model import ProviderOptions
from tellback.chat.providers.base import IdleTimeout, ProviderModel
from tellback.chat.providers.chat_completions import CompatibleModel, OpenAIModel
from tellback.chat.providers.gemini.model import GeminiModel
from tellback.chat.providers.ollama.model import OllamaModel
from tellback.chat.providers.openrouter.model import OpenRouterModel
from tellback.chat.providers.retry import RetryAttempts
from tellback.chat.registry import BuiltinAdapter, BuiltinProvider, Embeddings
from tellback.embed.vectors import SURROGATES, Vectors, normalize_rows, to_unit_vectors, validate_texts
from tellback.errors import ConfigurationError, EmbeddingError

MAX_CONCURRENT_REQUESTS = 4


class ProviderEmbedder:
    """An embedder that calls a provider's API through its SDK.

    `dimensions` is the length of the vectors. It is required for models whose vector length Tellback does not know, and
    requests shorter vectors from models that support this. `config` is added to every request unchanged. `timeout`,
    `retries` and `client` are those of the provider's chat models. A text that is too long for the model is embedded in
    pieces; its vector is their mean.
    """

    def __init__(self, model: ProviderModel, dimensions: int | None = None) -> None:
        if model.declaration.embeddings is None:
            raise ConfigurationError(f"{model.provider} has no embedding models in Tellback.")
        self._model = model
        self.prefix = str(model.declaration.variant)
        self.limits = limits = model.declaration.embeddings
        base_name = model.model.partition(":")[0].rpartition("/")[2]
        can_shorten = bool(limits.shortenable) and base_name.startswith(limits.shortenable)
        known_dimensions = limits.dimensions.get(base_name)
        if dimensions is None and known_dimensions is None:
            raise ConfigurationError(
                f"The vector length of {model.model!r} is unknown: pass dimensions=... to {type(self).__name__}."
                f" Known models: {', '.join(limits.dimensions)}."
            )
        if dimensions is not None and (not isinstance(dimensions, int) or dimensions < 1):
            raise ConfigurationError(f"dimensions must be an integer above 0, got {dimensions!r}.")
        requested = dimensions if dimensions != known_dimensions else None
        if requested and known_dimensions and not can_shorten:
            raise ConfigurationError(
                f"The vectors of {model.model!r} have {known_dimensions} dimensions, got dimensions={dimensions}."
            )
        if requested and known_dimensions and requested > known_dimensions:
            raise ConfigurationError(
                f"The vectors of {model.model!r} have at most {known_dimensions} dimensions, got {dimensions}."
            )
        self.dimensions: int = dimensions or known_dimensions or 0
        self._requested_dimensions = requested if can_shorten else None

    @property
    def model(self) -> str:
        """The model's name at its provider."""
        return self._model.model

    @property
    def name(self) -> str:
        """The name that is stored with the vectors."""
        return f"{self.prefix}/{self.model}-{self.dimensions}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, dimensions={self.dimensions})"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Return the vectors of the texts. Equal texts are sent once, blank texts never."""
        texts = [SURROGATES.sub("\ufffd", text) for text in validate_texts(texts)]
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
                return self._validate_response(await self._request(texts, query), len(texts))
            except Exception as error:
                if not attempts.record_failure(error):
                    raise
        failure = attempts.final_error()
        raise EmbeddingError(str(failure), retryable=failure.retryable) from failure

    async def _request(self, texts: list[str], query: bool) -> Any:
        idle_timeout = IdleTimeout(self._model.provider, self.model, self._model.timeout)
        return await self._model.request_embeddings(texts, self._requested_dimensions, query, idle_timeout)

    def _validate_response(self, rows: Any, count: int) -> Vectors:
        vectors = to_unit_vectors(rows, count, f"{self._model.provider} ({self.model})")
        if vectors.shape[1] != self.dimensions:
            raise EmbeddingError(
                f"{self._model.provider} returned vectors of {vectors.shape[1]} dimensions for {self.model}, expected"
                f" {self.dimensions}: pass dimensions={vectors.shape[1]}."
            )
        return vectors


def split_batches(texts: Sequence[str], limits: Embeddings) -> Iterator[tuple[int, int]]:
    """Split the texts into requests: yield the start and end index of each.

    >>> list(split_batches(["aa", "bb", "cc", "dddd", "e"], Embeddings(max_texts=2, max_bytes=5)))
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
    """Split a text into pieces of at most `limit` bytes, between words if possible.

    >>> list(split_text("one two three", 8))
    ['one two ', 'three']
    """
    data = text.encode()
    start = 0
    while len(data) - start > limit:
        end = data.rfind(b" ", start + limit // 2, start + limit) + 1
        if not end:
            end = start + limit
            while data[end] & 0xC0 == 0x80:  # within a character
                end -= 1
        yield data[start:end].decode()
        start = end
    yield data[start:].decode()


class OpenAIEmbedder(ProviderEmbedder):
    """OpenAI's embedding models. The key is `api_key` or OPENAI_API_KEY.

    >>> OpenAIEmbedder("text-embedding-3-large", dimensions=1024).name
    'openai/text-embedding-3-large-1024'
    """

    _chat_model_class: type[ProviderModel] = OpenAIModel

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        dimensions: int | None = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(self._chat_model_class(model, **options), dimensions)


class OpenRouterEmbedder(OpenAIEmbedder):
    """Embedding models at OpenRouter, named `vendor/model`. The key is `api_key` or OPENROUTER_API_KEY.

    >>> OpenRouterEmbedder("openai/text-embedding-3-small").name
    'openrouter/openai/text-embedding-3-small-1536'
    """

    _chat_model_class: type[ProviderModel] = OpenRouterModel


class CompatibleEmbedder(OpenAIEmbedder):
    """A model on any server with OpenAI's embeddings API: vLLM, LM Studio, llama.cpp, a gateway.

    `dimensions` is the length of its vectors. If the server can shorten vectors, also pass
    `config={"dimensions": ...}`. `provider` is the name in errors and in the embedder's name.

    >>> CompatibleEmbedder("bge-m3", base_url="http://127.0.0.1:8000/v1").name
    'compatible/bge-m3-1024'
    """

    _chat_model_class: type[ProviderModel] = CompatibleModel

    def __init__(
        self,
        model: str,
        *,
        provider: str | None = None,
        dimensions: int | None = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(model, dimensions=dimensions, **options)
        if provider is not None:
            self._model.provider = self.prefix = provider


class OllamaEmbedder(CompatibleEmbedder):
    """A model of an Ollama server: the one at OLLAMA_HOST, or the one on this machine.

    >>> OllamaEmbedder("nomic-embed-text").name
    'ollama/nomic-embed-text-768'
    """

    _chat_model_class: type[ProviderModel] = OllamaModel


class GeminiEmbedder(ProviderEmbedder):
    """Gemini's embedding models. The key is `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY.

    For Google Cloud, pass `client=`. The models distinguish questions from searched texts, so `query=True` matters.

    >>> GeminiEmbedder("gemini-embedding-001", dimensions=768).name
    'gemini/gemini-embedding-001-768'
    """

    def __init__(
        self, model: str = "gemini-embedding-001", *, dimensions: int | None = None, **options: Unpack[ProviderOptions]
    ) -> None:
        super().__init__(GeminiModel(model.removeprefix("models/"), **options), dimensions)


_PUBLIC_CLASSES: Mapping[str, Callable[..., ProviderEmbedder]] = {
    "gemini": GeminiEmbedder,
    "ollama": OllamaEmbedder,
    "openai": OpenAIEmbedder,
    "openrouter": OpenRouterEmbedder,
}


def open_embedder(provider: BuiltinProvider, model: str) -> ProviderEmbedder:
    """Return an embedder of a built-in provider."""
    public_class = _PUBLIC_CLASSES.get(provider.variant)
    if public_class is not None:
        return public_class(model)
    opened = BuiltinAdapter(provider).open(model)
    assert isinstance(opened, ProviderModel)
    return ProviderEmbedder(opened)
