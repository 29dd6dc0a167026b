"""Adapters to the vendors' own SDKs, a module or package each, on one base class.

Importing one loads no SDK; using it does. Applications import them from `tellback.chat`; no adapter imports
another.
"""

from __future__ import annotations

from tellback.chat.providers.anthropic import AnthropicModel as AnthropicModel
from tellback.chat.providers.gemini import GeminiModel as GeminiModel
from tellback.chat.providers.local import LocalModel as LocalModel
from tellback.chat.providers.openai import CompatibleModel as CompatibleModel
from tellback.chat.providers.openai import OllamaModel as OllamaModel
from tellback.chat.providers.openai import OpenAIModel as OpenAIModel
from tellback.chat.providers.openai import OpenRouterModel as OpenRouterModel
from tellback.chat.providers.openai import XaiModel as XaiModel
