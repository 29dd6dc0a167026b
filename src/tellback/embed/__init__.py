"""Embedders: what turns texts into vectors. Importing this loads neither numpy nor any model; using it does.

Imported by `memory`, `agent`, `app` and `cli`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tellback.embed.base import Embedder, resolve_embedder

if TYPE_CHECKING:
    from tellback.embed.function import FunctionEmbedder
    from tellback.embed.onnx import OnnxEmbedder
    from tellback.embed.providers import (
        CompatibleEmbedder,
        GeminiEmbedder,
        OllamaEmbedder,
        OpenAIEmbedder,
        OpenRouterEmbedder,
    )
    from tellback.embed.static import StaticEmbedder

_MODULE_BY_NAME = {
    "CompatibleEmbedder": "providers",
    "FunctionEmbedder": "function",
    "GeminiEmbedder": "providers",
    "OllamaEmbedder": "providers",
    "OnnxEmbedder": "onnx",
    "OpenAIEmbedder": "providers",
    "OpenRouterEmbedder": "providers",
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
    module = _MODULE_BY_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"tellback.embed.{module}"), name)
    return value
