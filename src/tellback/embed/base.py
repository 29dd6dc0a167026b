"""What an embedder is, and which one a name stands for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tellback.chat.registry import ProviderRegistration, builtin_providers, detect_provider_from
from tellback.errors import ConfigurationError

if TYPE_CHECKING:
    from tellback.embed.vectors import Vectors

_MAKERS = {
    "static": "static:StaticEmbedder",
    "onnx": "onnx:OnnxEmbedder",
    "openai": "openai:OpenAIEmbedder",
    "gemini": "gemini:GeminiEmbedder",
    "openrouter": "openai:OpenRouterEmbedder",
    "ollama": "openai:OllamaEmbedder",
}
_NAMED = {
    "text-embedding-004": "gemini",
    "text-embedding-": "openai",
    "gemini-embedding-": "gemini",
    "models/gemini-embedding-": "gemini",
    "all-minilm-l": "onnx",
    "all-mpnet-base-v2": "onnx",
    "paraphrase-multilingual-minilm-l12-v2": "onnx",
    "ollama/": "ollama",
    "openrouter/": "openrouter",
    "openai/text-embedding-": "openrouter",
    "google/gemini-embedding-": "openrouter",
}
"""How names of embedding models begin, and who makes their vectors; the first that fits is taken."""


@runtime_checkable
class Embedder(Protocol):
    """Anything that turns texts into vectors.

    `name` identifies the vectors, model and dimensions included: two embedders of one name make vectors that can be
    compared. It is stored with every vector.

    `embed` gives a C-contiguous float32 array of one row for each text, in their order, of length 1, or all zeros for
    a text with nothing in it. It takes any number of texts. `query` says that they are questions, for the models that
    tell questions from what is searched. It raises `EmbeddingError`, and then gives nothing. It may be called from
    several tasks and event loops at once. `close` may be called more than once.
    """

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors: ...

    async def close(self) -> None: ...


def resolve_embedder(
    embedder: str | Embedder | None, providers: Sequence[ProviderRegistration] | None = None
) -> Embedder | None:
    """The embedder that a name stands for; an embedder stays itself, and None says that there is none.

    A name is "static", "onnx", a model's ("text-embedding-3-small"), or one after its provider's
    ("openai:text-embedding-3-large", "ollama:nomic-embed-text"). A registration with an `embed_fn`, from `providers` or
    the built-in registry, is taken first for the names it recognises. Raises `ConfigurationError` for any other.

    >>> resolve_embedder("static")
    StaticEmbedder()
    >>> resolve_embedder("text-embedding-3-small").name
    'openai/text-embedding-3-small-1536'
    """
    if embedder is None:
        return None
    if not isinstance(embedder, str):
        return _as_embedder(embedder)
    registry = builtin_providers() if providers is None else providers
    kind, _, model = embedder.partition(":")
    kind = kind.strip().lower()
    if model and (entry := _entry_of(registry, kind)) is not None and entry.embed_fn is not None:
        return _registered(entry, model)
    if kind in _MAKERS and (model or not embedder.endswith(":")):
        return _make(kind, model)
    for entry in reversed(registry):
        if entry.embed_fn is not None and entry.detect(embedder.lower()):
            return _registered(entry, embedder)
    for start, maker in _NAMED.items():
        if embedder.lower().startswith(start):
            return _make(maker, embedder.removeprefix(f"{maker}/"))
    raise ConfigurationError(_unknown(embedder, registry))


def _make(kind: str, model: str) -> Embedder:
    module, name = _MAKERS[kind].split(":")
    if not model and kind in ("ollama", "openrouter"):
        raise ConfigurationError(f"Which model? Write {kind + ':'}<model>.")
    if model and kind == "static":
        raise ConfigurationError(f"There is only one static embedder: write 'static', not 'static:{model}'.")
    maker = getattr(importlib.import_module(f"tellback.embed.{module}"), name)
    made: Embedder = maker(model) if model else maker()
    return made


def _registered(entry: ProviderRegistration, model: str) -> Embedder:
    from tellback.embed.function import FunctionEmbedder

    assert entry.embed_fn is not None
    batch_size = entry.meta.get("embed_batch_size", 100)
    return FunctionEmbedder(f"{entry.variant}/{model}", partial(entry.embed_fn, model), batch_size=batch_size)


def _as_embedder(given: Any) -> Embedder:
    if callable(getattr(given, "embed", None)) and isinstance(getattr(given, "name", None), str):
        if hasattr(given, "close"):
            found: Embedder = given
            return found
        from tellback.embed.function import FunctionEmbedder

        return FunctionEmbedder(given.name, given.embed)
    raise ConfigurationError(
        f"An embedder is a name, such as 'static', or an object with a name and an embed method, not {given!r:.80}."
        " To use a function, wrap it: FunctionEmbedder('my-vectors', function)."
    )


def _entry_of(registry: Sequence[ProviderRegistration], variant: str) -> ProviderRegistration | None:
    return next((entry for entry in reversed(registry) if str(entry.variant).lower() == variant), None)


def _unknown(name: str, registry: Sequence[ProviderRegistration]) -> str:
    known = (
        "Known: 'static' (the bundled one), 'onnx', 'text-embedding-3-small' and other models of OpenAI,"
        " 'gemini-embedding-001', 'openrouter:<model>', 'ollama:<model>'"
    )
    others = [entry.display_name for entry in registry if entry.embed_fn is not None]
    known += f", and the models of {', '.join(others)}." if others else "."
    entry = detect_provider_from(registry, name) or _entry_of(registry, name.partition(":")[0].lower())
    if entry is None:
        return f"There is no embedder {name!r}. {known}"
    if entry.variant == "anthropic":
        return f"{name!r} cannot embed: Anthropic has no embedding API. {known}"
    return f"{name!r} is a model of {entry.display_name} to talk to, not one that embeds. {known}"
