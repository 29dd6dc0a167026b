"""Embedders that call a provider's API: OpenAI, OpenRouter, compatible servers, Ollama and Gemini.

They share batching, retries, splitting of long texts and validation of responses. The client, its key and the mapping
of its SDK's exceptions come from the provider's chat adapter."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from tellback import telemetry
from tellback.chat.model import ProviderOptions
from tellback.chat.providers.base import IdleTimeout, ProviderModel
from tellback.chat.providers.errors import build_arguments, unreadable_response_error
from tellback.chat.providers.gemini import GeminiModel, build_config
from tellback.chat.providers.openai import CompatibleModel, OllamaModel, OpenAIModel, OpenRouterModel
from tellback.chat.providers.retry import RetryAttempts
from tellback.embed.vectors import SURROGATES, Vectors, normalize_rows, to_unit_vectors, validate_texts
from tellback.errors import ConfigurationError, EmbeddingError, ProviderError

MAX_CONCURRENT_REQUESTS = 4


_OPENAI_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


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


class OpenAIEmbedder(ProviderEmbedder):
    """OpenAI's embedding models. The key is `api_key` or OPENAI_API_KEY.

    >>> OpenAIEmbedder("text-embedding-3-large", dimensions=1024).name
    'openai/text-embedding-3-large-1024'
    """

    prefix = "openai"
    limits = BatchLimits(max_texts=2048, max_bytes=300_000, max_text_bytes=8_000)
    model_dimensions: Mapping[str, int] = _OPENAI_DIMENSIONS
    shortenable_prefixes: tuple[str, ...] = ("text-embedding-3",)
    encoding = "base64"
    _chat_model_class: type[ProviderModel] = OpenAIModel

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        dimensions: int | None = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        super().__init__(self._chat_model_class(model, **options), dimensions)

    async def _request(self, texts: list[str], query: bool, pace: IdleTimeout) -> Any:
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": self.encoding}
        if self._requested_dimensions:
            body["dimensions"] = self._requested_dimensions
        arguments = build_arguments(body, dict(self._model.config), self._model.timeout)
        response = await pace.wait(self._model.client.embeddings.create(**arguments))
        items = getattr(response, "data", None)
        if not isinstance(items, list):
            raise self._unreadable_response(f"{response!r:.200}")
        indices = [getattr(item, "index", None) for item in items]
        if sorted(map(str, indices)) == sorted(map(str, range(len(items)))):
            items = sorted(items, key=lambda item: int(item.index))
        elif len(set(indices)) > 1:  # some servers number nothing, and keep the order
            raise self._unreadable_response(f"vectors numbered {indices}")
        return [self._decode_vector(getattr(item, "embedding", None)) for item in items]

    def _decode_vector(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return np.frombuffer(base64.b64decode(value, validate=True), dtype="<f4")
        except (binascii.Error, ValueError) as error:
            raise self._unreadable_response(f"a vector that is no base64 of floats: {error}") from error


class OpenRouterEmbedder(OpenAIEmbedder):
    """Embedding models by way of OpenRouter, named `vendor/model`. The key is `api_key` or OPENROUTER_API_KEY.

    >>> OpenRouterEmbedder("openai/text-embedding-3-small").name
    'openrouter/openai/text-embedding-3-small-1536'
    """

    prefix = "openrouter"
    limits = BatchLimits(max_texts=256, max_bytes=300_000, max_text_bytes=8_000)
    model_dimensions: Mapping[str, int] = {
        **_OPENAI_DIMENSIONS,
        "gemini-embedding-001": 3072,
        "qwen3-embedding-8b": 4096,
    }
    shortenable_prefixes = ("text-embedding-3", "gemini-embedding")
    encoding = "float"
    _chat_model_class: type[ProviderModel] = OpenRouterModel

    def _base_model_name(self) -> str:
        return self.model.rpartition("/")[2]


class CompatibleEmbedder(OpenAIEmbedder):
    """A model on any server that speaks OpenAI's embeddings API: vLLM, LM Studio, llama.cpp, a gateway.

    `dimensions` says how long its vectors are. Where the server can shorten them, ask for it with
    `config={"dimensions": ...}` as well. `provider` is the name used in errors, and in the embedder's name.

    >>> CompatibleEmbedder("bge-m3", base_url="http://127.0.0.1:8000/v1").name
    'compatible/bge-m3-1024'
    """

    prefix = "compatible"
    limits = BatchLimits(max_texts=128, max_bytes=100_000, max_text_bytes=2_000)
    model_dimensions: Mapping[str, int] = {
        "all-minilm": 384,
        "bge-m3": 1024,
        "embeddinggemma": 768,
        "mxbai-embed-large": 1024,
        "nomic-embed-text": 768,
    }
    shortenable_prefixes = ()
    encoding = "float"
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

    def _base_model_name(self) -> str:
        return self.model.partition(":")[0].rpartition("/")[2]


class OllamaEmbedder(CompatibleEmbedder):
    """A model of an Ollama server: OLLAMA_HOST, or this machine's.

    >>> OllamaEmbedder("nomic-embed-text").name
    'ollama/nomic-embed-text-768'
    """

    prefix = "ollama"
    _chat_model_class: type[ProviderModel] = OllamaModel


class GeminiEmbedder(ProviderEmbedder):
    """Gemini's embedding models. The key is `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY.

    For Google Cloud, pass `client=`. They tell questions from what is searched: `query=True` matters here.

    >>> GeminiEmbedder("gemini-embedding-001", dimensions=768).name
    'gemini/gemini-embedding-001-768'
    """

    prefix = "gemini"
    limits = BatchLimits(max_texts=100, max_bytes=80_000, max_text_bytes=6_000)
    model_dimensions: Mapping[str, int] = {
        "gemini-embedding-001": 3072,
        "gemini-embedding-2": 3072,
        "text-embedding-004": 768,
    }
    shortenable_prefixes = ("gemini-embedding", "text-embedding-004")

    def __init__(
        self, model: str = "gemini-embedding-001", *, dimensions: int | None = None, **options: Unpack[ProviderOptions]
    ) -> None:
        super().__init__(GeminiModel(model.removeprefix("models/"), **options), dimensions)

    async def _request(self, texts: list[str], query: bool, pace: IdleTimeout) -> Any:
        from google.genai import types

        config: dict[str, Any] = dict(self._model.config)
        if self._requested_dimensions:
            config["output_dimensionality"] = self._requested_dimensions
        if "gemini-embedding-2" in self.model:
            # It ignores task types, and wants to be told in words.
            instruction = "task: search result | query: " if query else "title: none | text: "
            texts = [instruction + text for text in texts]
        else:
            config.setdefault("task_type", "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT")
        request_config = build_config(types.EmbedContentConfig, config, self._model.timeout)
        # As contents, not as texts: the SDK would make one content, and so one vector, of several texts.
        contents = [types.Content(role="user", parts=[types.Part(text=text)]) for text in texts]
        client = self._model.client
        models = getattr(client, "aio", client).models
        # Google Cloud takes one at a time.
        groups = [[content] for content in contents] if getattr(client, "vertexai", False) else [contents]
        values = []
        for group in groups:
            try:
                response = await pace.wait(
                    models.embed_content(model=self.model, contents=group, config=request_config)
                )
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # The SDK takes the answer apart without a look at its shape.
                raise self._unreadable_response(f"{type(error).__name__}: {error}") from error
            values += [embedding.values for embedding in response.embeddings or ()]
        return values
