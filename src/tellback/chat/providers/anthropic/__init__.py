"""Anthropic's Messages API."""

from tellback.chat.providers.anthropic.model import AnthropicModel

__all__ = ["AnthropicModel"]
