"""Embedders: what turns texts into vectors. Importing this loads neither numpy nor any model; using it does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from recollect.embed.base import Embedder, resolve_embedder

if TYPE_CHECKING:
    from recollect.embed.function import FunctionEmbedder
    from recollect.embed.gemini import GeminiEmbedder
    from recollect.embed.onnx import OnnxEmbedder
    from recollect.embed.openai import CompatibleEmbedder, OllamaEmbedder, OpenAIEmbedder, OpenRouterEmbedder
    from recollect.embed.static import StaticEmbedder

_HOME = {
    "CompatibleEmbedder": "openai",
    "FunctionEmbedder": "function",
    "GeminiEmbedder": "gemini",
    "OllamaEmbedder": "openai",
    "OnnxEmbedder": "onnx",
    "OpenAIEmbedder": "openai",
    "OpenRouterEmbedder": "openai",
    "StaticEmbedder": "static",
}

__all__ = [
    "CompatibleEmbedder",
    "Embedder",
    "FunctionEmbedder",
    "GeminiEmbedder",
    "OllamaEmbedder",
    "OnnxEmbedder",
    "OpenAIEmbedder",
    "OpenRouterEmbedder",
    "StaticEmbedder",
    "resolve_embedder",
]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"recollect.embed.{module}"), name)
    return value
