"""xAI's Grok models, through OpenAI's chat API."""

from __future__ import annotations

from tellback.chat.registry import BuiltinProvider, Provider, prefix_detector

PROVIDER = BuiltinProvider(
    Provider.XAI,
    "xAI",
    prefix_detector("grok"),
    "grok-...",
    "tellback.chat.providers.xai.model:XaiModel",
    base_url="https://api.x.ai/v1",
    key_variables=("XAI_API_KEY",),
    default_model="grok-4",
    sdk="openai",
    extra="openai",
    price_id="x-ai",
    otel_name="x_ai",
)
