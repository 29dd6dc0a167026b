"""Embedders, which convert texts to vectors. Importing this package loads neither numpy nor a model.

Imported by `memory`, `agent`, `app` and `cli`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.embed.base import Embedder as Embedder
from tellback.embed.base import resolve_embedder as resolve_embedder
from tellback.exports import lazy_exports

if TYPE_CHECKING:
    from tellback.embed.onnx import OnnxEmbedder as OnnxEmbedder
    from tellback.embed.providers import CompatibleEmbedder as CompatibleEmbedder
    from tellback.embed.providers import GeminiEmbedder as GeminiEmbedder
    from tellback.embed.providers import OllamaEmbedder as OllamaEmbedder
    from tellback.embed.providers import OpenAIEmbedder as OpenAIEmbedder
    from tellback.embed.providers import OpenRouterEmbedder as OpenRouterEmbedder
    from tellback.embed.static import StaticEmbedder as StaticEmbedder
    from tellback.embed.vectors import FunctionEmbedder as FunctionEmbedder
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tellback.embed.vectors": "FunctionEmbedder",
            "tellback.embed.onnx": "OnnxEmbedder",
            "tellback.embed.providers": """
                CompatibleEmbedder GeminiEmbedder OllamaEmbedder OpenAIEmbedder OpenRouterEmbedder
            """,
            "tellback.embed.static": "StaticEmbedder",
        },
    )
    __all__ += ["Embedder", "resolve_embedder"]
