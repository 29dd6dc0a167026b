"""Anthropic's messages API. `model` has `AnthropicModel` and the encoding of messages, replies and streams."""

from __future__ import annotations

from tellback.chat.registry import BuiltinProvider, Provider, prefix_detector

PROVIDER = BuiltinProvider(
    Provider.ANTHROPIC,
    "Anthropic",
    prefix_detector("claude"),
    "claude-...",
    "tellback.chat.providers.anthropic.model:AnthropicModel",
    key_variables=("ANTHROPIC_API_KEY",),
    default_model="claude-sonnet-5",
    sdk="anthropic",
    extra="anthropic",
    settings={"temperature": "temperature", "top_p": "top_p", "stop": "stop_sequences"},
    max_temperature=1.0,
    price_id="anthropic",
)
