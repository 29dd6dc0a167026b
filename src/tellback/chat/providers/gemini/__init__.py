"""Google's Gemini API."""

from tellback.chat.providers.gemini.model import GeminiModel

__all__ = ["GeminiModel"]
