"""`resolve_embedder`: find an embedder by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tellback.chat import ProviderRegistration, prefix_detector, with_providers
from tellback.chat.registry import BuiltinProvider, Embeddings
from tellback.embed import FunctionEmbedder, StaticEmbedder, resolve_embedder
from tellback.embed.providers import open_embedder
from tellback.errors import ConfigurationError


def resolve(embedder: Any, providers: Sequence[ProviderRegistration] | None = None) -> Any:
    found = resolve_embedder(embedder, providers)
    assert found is not None
    return found


async def acme(model: str, texts: Sequence[str]) -> list[list[float]]:
    return [[float(len(model)), float(len(text))] for text in texts]


ACME = ProviderRegistration("acme", prefix_detector("acme-"), "Acme", embed_fn=acme)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("static", "static/wordllama-l2-supercat-256"),
        ("Static", "static/wordllama-l2-supercat-256"),
        ("onnx", "onnx/all-MiniLM-L6-v2-384"),
        ("onnx:all-MiniLM-L12-v2", "onnx/all-MiniLM-L12-v2-384"),
        ("all-MiniLM-L6-v2", "onnx/all-MiniLM-L6-v2-384"),
        ("openai", "openai/text-embedding-3-small-1536"),
        ("openai:text-embedding-3-large", "openai/text-embedding-3-large-3072"),
        ("text-embedding-3-small", "openai/text-embedding-3-small-1536"),
        ("text-embedding-ada-002", "openai/text-embedding-ada-002-1536"),
        ("gemini", "gemini/gemini-embedding-001-3072"),
        ("gemini:gemini-embedding-001", "gemini/gemini-embedding-001-3072"),
        ("gemini-embedding-001", "gemini/gemini-embedding-001-3072"),
        ("models/gemini-embedding-2", "gemini/gemini-embedding-2-3072"),
        ("text-embedding-004", "gemini/text-embedding-004-768"),
        ("ollama:nomic-embed-text", "ollama/nomic-embed-text-768"),
        ("ollama:nomic-embed-text:v1.5", "ollama/nomic-embed-text:v1.5-768"),
        ("ollama/bge-m3", "ollama/bge-m3-1024"),
        ("openrouter:openai/text-embedding-3-small", "openrouter/openai/text-embedding-3-small-1536"),
        ("openrouter/openai/text-embedding-3-small", "openrouter/openai/text-embedding-3-small-1536"),
        ("openai/text-embedding-3-small", "openrouter/openai/text-embedding-3-small-1536"),
    ],
)
def test_a_name_resolves_to_its_embedder(value: str, name: str) -> None:
    assert resolve(value).name == name


def test_a_declared_provider_needs_no_embedder_class() -> None:
    host = BuiltinProvider(
        "host",
        "Host",
        prefix_detector("host/"),
        "host/...",
        base_url="http://host/v1",
        embeddings=Embeddings({"m": 64}),
    )
    assert open_embedder(host, "m").name == "host/m-64"
    with pytest.raises(ConfigurationError, match="Host has no embedding models"):
        open_embedder(replace(host, embeddings=None), "m")


def test_none_resolves_to_none() -> None:
    assert resolve_embedder(None) is None


def test_an_embedder_object_is_returned_unchanged() -> None:
    for embedder in (StaticEmbedder(), FunctionEmbedder("mine", acme)):
        assert resolve_embedder(embedder) is embedder


async def test_an_object_with_a_name_and_an_embed_method_is_an_embedder() -> None:
    class CustomEmbedder:
        name = "mine-2"

        async def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
            return [[3.0, 4.0]] * len(texts)

    embedder = resolve(CustomEmbedder())
    assert embedder.name == "mine-2"
    np.testing.assert_allclose(await embedder.embed(["a", ""]), [[0.6, 0.8], [0.0, 0.0]], atol=1e-6)
    await embedder.close()


async def test_a_registration_embeds_the_models_it_recognises() -> None:
    for name in ("acme-embed", "ACME-embed", "acme:acme-embed"):
        embedder = resolve(name, with_providers([ACME]))
        rows = await embedder.embed(["x" * 10, ""])
        assert rows[0] == pytest.approx(np.array([10, 10]) / np.sqrt(200))
        assert not rows[1].any()
    assert resolve("acme-embed", [ACME]).name == "acme/acme-embed"


async def test_the_batch_size_of_a_registration_is_respected() -> None:
    batch_sizes: list[int] = []

    async def count_batch(model: str, texts: Sequence[str]) -> list[list[float]]:
        batch_sizes.append(len(texts))
        return [[1.0]] * len(texts)

    entry = ProviderRegistration(
        "acme", prefix_detector("acme-"), "Acme", embed_fn=count_batch, meta={"embed_batch_size": 8}
    )
    await resolve("acme-embed", [entry]).embed([f"text {n}" for n in range(20)])
    assert batch_sizes == [8, 8, 4]


def test_the_last_registration_wins_also_over_built_in_models() -> None:
    first = ProviderRegistration("first", prefix_detector("text-embedding-"), "First", embed_fn=acme)
    second = ProviderRegistration("second", prefix_detector("text-embedding-"), "Second", embed_fn=acme)
    silent = ProviderRegistration("silent", prefix_detector("text-embedding-"), "Silent")
    assert resolve("text-embedding-3-small", with_providers([first, second, silent])).name.startswith("second/")


def test_a_registration_can_replace_a_built_in_provider() -> None:
    entry = ProviderRegistration("openai", prefix_detector("gpt-"), "Gateway", embed_fn=acme)
    assert isinstance(resolve("openai:text-embedding-3-small", with_providers([entry])), FunctionEmbedder)


@pytest.mark.parametrize("name", ["claude-sonnet-5", "anthropic:claude", "anthropic", "anthropic:voyage-3"])
def test_a_provider_without_embedding_models_raises_an_error_that_lists_others(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Anthropic has no embedding.*'static'.*text-embedding-3-small"):
        resolve_embedder(name)


@pytest.mark.parametrize("name", ["gpt-5", "gemini-2.5-flash"])
def test_a_chat_model_is_not_an_embedder(name: str) -> None:
    with pytest.raises(ConfigurationError, match="is a chat model of"):
        resolve_embedder(name)


@pytest.mark.parametrize(
    "name", ["", "nonsense", "statics", "static:other", "ollama:", "openrouter", "onnx:bert", ":x"]
)
def test_an_unknown_name_raises_configuration_error(name: str) -> None:
    with pytest.raises(ConfigurationError):
        resolve_embedder(name)


def test_the_error_for_an_unknown_name_lists_registrations() -> None:
    with pytest.raises(ConfigurationError, match="Acme"):
        resolve_embedder("nonsense", with_providers([ACME]))


@pytest.mark.parametrize("value", [3, object(), lambda texts: texts, StaticEmbedder, ["static"]])
def test_other_objects_raise_configuration_error(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="FunctionEmbedder"):
        resolve_embedder(value)
