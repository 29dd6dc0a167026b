"""A whole reply of Gemini's in our values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tellback.chat.providers.failures import unreadable
from tellback.chat.providers.gemini.stream import Collected
from tellback.types import ChatReply


def decode(response: Any, provider: str, model: str) -> ChatReply:
    """A whole response."""
    collected = Collected(provider, model)
    for _ in collected.add(response):
        pass
    if not response.candidates and collected.blocked is None:
        raise unreadable(provider, model, "no candidates, and no reason why")
    return replace(collected.reply(), raw=response)
