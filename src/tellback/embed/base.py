"""The `Embedder` protocol, and `resolve_embedder`, which finds an embedder by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tellback.chat.registry import (
    BuiltinProvider,
    Embeddings,
    ProviderRegistration,
    builtin_providers,
    detect_provider_from,
    find_builtin_provider,
    load_builtin_providers,
)
from tellback.errors import ConfigurationError

if TYPE_CHECKING:
    from tellback.embed.vectors import Vectors

_LOCAL_EMBEDDERS = {"static": "static:StaticEmbedder", "onnx": "onnx:OnnxEmbedder"}
_ONNX_PREFIXES = ("all-minilm-l", "all-mpnet-base-v2", "paraphrase-multilingual-minilm-l12-v2")


@runtime_checkable
class Embedder(Protocol):
    """Anything that converts texts to vectors.

    `name` identifies the vectors, including model and dimensions. Vectors of embedders with equal names can be
    compared. The name is stored with every vector.

    `embed` returns a C-contiguous float32 array with one row per text, in order. A row has length 1, or is all zeros
    for a blank text. It accepts any number of texts. `query` means that the texts are questions, for models that
    distinguish questions from searched texts. `embed` raises `EmbeddingError`. Several tasks and event loops may call
    it at the same time. `close` may be called more than once.

    >>> import asyncio
    >>> from tellback.embed import resolve_embedder
    >>> embedder = resolve_embedder("static")
    >>> isinstance(embedder, Embedder), len(asyncio.run(embedder.embed(["Hello"])))
    (True, 1)
    """

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors: ...

    async def close(self) -> None: ...


def resolve_embedder(
    embedder: str | Embedder | None, providers: Sequence[ProviderRegistration] | None = None
) -> Embedder | None:
    """Return the embedder with this name; an embedder object and None are returned unchanged.

    A name is "static", "onnx", the name of a model ("text-embedding-3-small"), or a provider and a model
    ("openai:text-embedding-3-large", "ollama:nomic-embed-text"). A registration with an `embed_fn`, from `providers` or
    the built-in registry, has priority for the names that it recognises. Raises `ConfigurationError` for unknown names.

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
    if model or not embedder.endswith(":"):
        if kind in _LOCAL_EMBEDDERS:
            return _create_local_embedder(kind, model)
        provider = find_builtin_provider(kind)
        if provider is not None and provider.embeddings is not None and kind == provider.variant:
            return _create_provider_embedder(provider, model)
    for registration in reversed(registry):
        if registration.embed_fn is not None and registration.detect(embedder.lower()):
            return _from_registration(registration, embedder)
    if embedder.lower().startswith(_ONNX_PREFIXES):
        return _create_local_embedder("onnx", embedder)
    if (provider := _find_provider_by_prefix(embedder.lower())) is not None:
        return _create_provider_embedder(provider, embedder)
    raise ConfigurationError(_unknown_embedder_message(embedder, registry))


def _create_local_embedder(kind: str, model: str) -> Embedder:
    module, name = _LOCAL_EMBEDDERS[kind].split(":")
    if model and kind == "static":
        raise ConfigurationError(f"There is only one static embedder: write 'static', not 'static:{model}'.")
    factory = getattr(importlib.import_module(f"tellback.embed.{module}"), name)
    embedder: Embedder = factory(model) if model else factory()
    return embedder


def _create_provider_embedder(provider: BuiltinProvider, model: str) -> Embedder:
    from tellback.embed.providers import open_embedder

    name = provider.model_name(model) or (provider.embeddings or Embeddings()).default_model
    if not name:
        raise ConfigurationError(f"The name of an embedding model is missing: write {provider.variant}:<model>.")
    return open_embedder(provider, name)


def _find_provider_by_prefix(model: str) -> BuiltinProvider | None:
    matches = [
        (len(prefix), provider)
        for provider in load_builtin_providers()
        for prefix in (() if provider.embeddings is None else provider.embeddings.prefixes)
        if model.startswith(prefix)
    ]
    return max(matches, key=lambda match: match[0])[1] if matches else None


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
        f"embedder must be a name, such as 'static', or an object with a name and an embed method, got {value!r:.80}."
        " To use a function, wrap it: FunctionEmbedder('my-vectors', function)."
    )


def _find_registration(registry: Sequence[ProviderRegistration], variant: str) -> ProviderRegistration | None:
    return next(
        (registration for registration in reversed(registry) if str(registration.variant).lower() == variant), None
    )


def _unknown_embedder_message(name: str, registry: Sequence[ProviderRegistration]) -> str:
    embedding_providers = [provider for provider in load_builtin_providers() if provider.embeddings is not None]
    examples = [
        repr((provider.embeddings and provider.embeddings.default_model) or f"{provider.variant}:<model>")
        for provider in embedding_providers
    ]
    known = f"Known: 'static' (bundled), 'onnx', {', '.join(examples)}"
    others = [registration.display_name for registration in registry if registration.embed_fn is not None]
    known += f", and the models of {', '.join(others)}." if others else "."
    registration = detect_provider_from(registry, name) or _find_registration(registry, name.partition(":")[0].lower())
    if registration is None:
        return f"There is no embedder {name!r}. {known}"
    if find_builtin_provider(registration.variant) in embedding_providers:
        return f"{name!r} is a chat model of {registration.display_name}, not an embedding model. {known}"
    return f"{name!r} is not an embedder: {registration.display_name} has no embedding models in Tellback. {known}"
