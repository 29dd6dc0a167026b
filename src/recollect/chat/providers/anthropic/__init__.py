"""Anthropic's Messages API."""

from recollect.chat.providers.anthropic.model import AnthropicModel

__all__ = ["AnthropicModel"]
