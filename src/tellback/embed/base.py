"""The `Embedder` protocol, and `resolve_embedder`, which finds an embedder by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tellback.chat.registry import ProviderRegistration, builtin_providers, detect_provider_from
from tellback.errors import ConfigurationError

if TYPE_CHECKING:
    from tellback.embed.vectors import Vectors

_EMBEDDER_PATHS = {
    "static": "static:StaticEmbedder",
    "onnx": "onnx:OnnxEmbedder",
    "openai": "providers:OpenAIEmbedder",
    "gemini": "providers:GeminiEmbedder",
    "openrouter": "providers:OpenRouterEmbedder",
    "ollama": "providers:OllamaEmbedder",
}
_PROVIDER_BY_PREFIX = {
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
        return _coerce_embedder(embedder)
    registry = builtin_providers() if providers is None else providers
    kind, _, model = embedder.partition(":")
    kind = kind.strip().lower()
    if model and (registration := _find_registration(registry, kind)) is not None and registration.embed_fn is not None:
        return _from_registration(registration, model)
    if kind in _EMBEDDER_PATHS and (model or not embedder.endswith(":")):
        return _create_embedder(kind, model)
    for registration in reversed(registry):
        if registration.embed_fn is not None and registration.detect(embedder.lower()):
            return _from_registration(registration, embedder)
    for prefix, provider in _PROVIDER_BY_PREFIX.items():
        if embedder.lower().startswith(prefix):
            return _create_embedder(provider, embedder.removeprefix(f"{provider}/"))
    raise ConfigurationError(_unknown_embedder_message(embedder, registry))


def _create_embedder(kind: str, model: str) -> Embedder:
    module, name = _EMBEDDER_PATHS[kind].split(":")
    if not model and kind in ("ollama", "openrouter"):
        raise ConfigurationError(f"Which model? Write {kind + ':'}<model>.")
    if model and kind == "static":
        raise ConfigurationError(f"There is only one static embedder: write 'static', not 'static:{model}'.")
    factory = getattr(importlib.import_module(f"tellback.embed.{module}"), name)
    embedder: Embedder = factory(model) if model else factory()
    return embedder


def _from_registration(registration: ProviderRegistration, model: str) -> Embedder:
    from tellback.embed.vectors import FunctionEmbedder

    assert registration.embed_fn is not None
    batch_size = registration.meta.get("embed_batch_size", 100)
    return FunctionEmbedder(
        f"{registration.variant}/{model}", partial(registration.embed_fn, model), batch_size=batch_size
    )


def _coerce_embedder(value: Any) -> Embedder:
    if callable(getattr(value, "embed", None)) and isinstance(getattr(value, "name", None), str):
        if hasattr(value, "close"):
            embedder: Embedder = value
            return embedder
        from tellback.embed.vectors import FunctionEmbedder

        return FunctionEmbedder(value.name, value.embed)
    raise ConfigurationError(
        f"An embedder is a name, such as 'static', or an object with a name and an embed method, not {value!r:.80}."
        " To use a function, wrap it: FunctionEmbedder('my-vectors', function)."
    )


def _find_registration(registry: Sequence[ProviderRegistration], variant: str) -> ProviderRegistration | None:
    return next(
        (registration for registration in reversed(registry) if str(registration.variant).lower() == variant), None
    )


def _unknown_embedder_message(name: str, registry: Sequence[ProviderRegistration]) -> str:
    known = (
        "Known: 'static' (the bundled one), 'onnx', 'text-embedding-3-small' and other models of OpenAI,"
        " 'gemini-embedding-001', 'openrouter:<model>', 'ollama:<model>'"
    )
    others = [registration.display_name for registration in registry if registration.embed_fn is not None]
    known += f", and the models of {', '.join(others)}." if others else "."
    registration = detect_provider_from(registry, name) or _find_registration(registry, name.partition(":")[0].lower())
    if registration is None:
        return f"There is no embedder {name!r}. {known}"
    if registration.variant == "anthropic":
        return f"{name!r} cannot embed: Anthropic has no embedding API. {known}"
    return f"{name!r} is a model of {registration.display_name} to talk to, not one that embeds. {known}"
