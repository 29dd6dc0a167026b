"""Google's Gemini API."""

from recollect.chat.providers.gemini.model import GeminiModel

__all__ = ["GeminiModel"]
