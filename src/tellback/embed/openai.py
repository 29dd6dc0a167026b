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
from tellback.chat.providers.pace import Pace
from tellback.embed.remote import EmbedderOptions, Limits, ProviderEmbedder

_OPENAI_SIZES = {
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
    limits = Limits(texts=2048, bytes=300_000, bytes_of_text=8_000)
    sizes: Mapping[str, int] = _OPENAI_SIZES
    shortened: tuple[str, ...] = ("text-embedding-3",)
    encoding = "base64"
    _adapter: type[ProviderModel] = OpenAIModel

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        dimensions: int | None = None,
        **options: Unpack[EmbedderOptions],
    ) -> None:
        super().__init__(self._adapter(model, **options), dimensions)

    async def _request(self, texts: list[str], query: bool, pace: Pace) -> Any:
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": self.encoding}
        if self._asked:
            body["dimensions"] = self._asked
        arguments = stainless.arguments(body, dict(self._model.config), self._model.timeout)
        response = await pace.wait(self._model.client.embeddings.create(**arguments))
        items = getattr(response, "data", None)
        if not isinstance(items, list):
            raise self._unreadable(f"{response!r:.200}")
        places = [getattr(item, "index", None) for item in items]
        if sorted(map(str, places)) == sorted(map(str, range(len(items)))):
            items = sorted(items, key=lambda item: int(item.index))
        elif len(set(places)) > 1:  # some servers number nothing, and keep the order
            raise self._unreadable(f"vectors numbered {places}")
        return [self._vector(getattr(item, "embedding", None)) for item in items]

    def _vector(self, sent: Any) -> Any:
        if not isinstance(sent, str):
            return sent
        try:
            return np.frombuffer(base64.b64decode(sent, validate=True), dtype="<f4")
        except (binascii.Error, ValueError) as error:
            raise self._unreadable(f"a vector that is no base64 of floats: {error}") from error


class OpenRouterEmbedder(OpenAIEmbedder):
    """Embedding models by way of OpenRouter, named `vendor/model`. The key is `api_key` or OPENROUTER_API_KEY.

    >>> OpenRouterEmbedder("openai/text-embedding-3-small").name
    'openrouter/openai/text-embedding-3-small-1536'
    """

    prefix = "openrouter"
    limits = Limits(texts=256, bytes=300_000, bytes_of_text=8_000)
    sizes: Mapping[str, int] = {**_OPENAI_SIZES, "gemini-embedding-001": 3072, "qwen3-embedding-8b": 4096}
    shortened = ("text-embedding-3", "gemini-embedding")
    encoding = "float"
    _adapter: type[ProviderModel] = OpenRouterModel

    def _plain_name(self) -> str:
        return self.model.rpartition("/")[2]


class CompatibleEmbedder(OpenAIEmbedder):
    """A model on any server that speaks OpenAI's embeddings API: vLLM, LM Studio, llama.cpp, a gateway.

    `dimensions` says how long its vectors are. Where the server can shorten them, ask for it with
    `config={"dimensions": ...}` as well. `provider` is the name used in errors, and in the embedder's name.

    >>> CompatibleEmbedder("bge-m3", base_url="http://127.0.0.1:8000/v1").name
    'compatible/bge-m3-1024'
    """

    prefix = "compatible"
    limits = Limits(texts=128, bytes=100_000, bytes_of_text=2_000)
    sizes: Mapping[str, int] = {
        "all-minilm": 384,
        "bge-m3": 1024,
        "embeddinggemma": 768,
        "mxbai-embed-large": 1024,
        "nomic-embed-text": 768,
    }
    shortened = ()
    encoding = "float"
    _adapter: type[ProviderModel] = CompatibleModel

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

    def _plain_name(self) -> str:
        return self.model.partition(":")[0].rpartition("/")[2]


class OllamaEmbedder(CompatibleEmbedder):
    """A model of an Ollama server: OLLAMA_HOST, or this machine's.

    >>> OllamaEmbedder("nomic-embed-text").name
    'ollama/nomic-embed-text-768'
    """

    prefix = "ollama"
    _adapter: type[ProviderModel] = OllamaModel
