"""Embedders that speak OpenAI's embeddings API, through the `openai` SDK."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from tellback.chat.providers import stainless
from tellback.chat.providers.base import ProviderModel
from tellback.chat.providers.openai import CompatibleModel, OllamaModel, OpenAIModel, OpenRouterModel
from tellback.chat.providers.pace import IdleTimeout
from tellback.embed.remote import BatchLimits, EmbedderOptions, ProviderEmbedder

_OPENAI_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


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
        **options: Unpack[EmbedderOptions],
    ) -> None:
        super().__init__(self._chat_model_class(model, **options), dimensions)

    async def _request(self, texts: list[str], query: bool, pace: IdleTimeout) -> Any:
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": self.encoding}
        if self._requested_dimensions:
            body["dimensions"] = self._requested_dimensions
        arguments = stainless.build_arguments(body, dict(self._model.config), self._model.timeout)
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
        **options: Unpack[EmbedderOptions],
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
