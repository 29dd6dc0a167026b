"""A whole reply of Gemini's in our values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tellback.chat.providers.failures import unreadable_response_error
from tellback.chat.providers.gemini.stream import GeminiStreamReader
from tellback.types import ChatReply


def decode(response: Any, provider: str, model: str) -> ChatReply:
    """A whole response."""
    reader = GeminiStreamReader(provider, model)
    for _ in reader.add(response):
        pass
    if not response.candidates and reader.block_reason is None:
        raise unreadable_response_error(provider, model, "no candidates, and no reason why")
    return replace(reader.reply(), raw=response)
