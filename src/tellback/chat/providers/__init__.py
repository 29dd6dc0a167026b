"""Adapters to the vendors' own SDKs, a module or package each, on one base class.

Importing one loads no SDK; using it does. Applications import them from `tellback.chat`; no adapter imports
another.
"""

from __future__ import annotations

from tellback.chat.providers.anthropic import AnthropicModel
from tellback.chat.providers.gemini import GeminiModel
from tellback.chat.providers.local import LocalModel
from tellback.chat.providers.openai import CompatibleModel, OllamaModel, OpenAIModel, OpenRouterModel, XaiModel

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
