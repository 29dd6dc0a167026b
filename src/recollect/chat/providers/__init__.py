"""Adapters to the vendors' own SDKs, one folder each. Importing one loads no SDK; using it does."""

from __future__ import annotations

from recollect.chat.providers.anthropic import AnthropicModel
from recollect.chat.providers.gemini import GeminiModel
from recollect.chat.providers.local import LocalModel
from recollect.chat.providers.openai import CompatibleModel, OllamaModel, OpenAIModel, OpenRouterModel, XaiModel

__all__ = [
    "AnthropicModel",
    "CompatibleModel",
    "GeminiModel",
    "LocalModel",
    "OllamaModel",
    "OpenAIModel",
    "OpenRouterModel",
    "XaiModel",
]
