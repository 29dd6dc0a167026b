"""OpenRouter: models of many vendors, with names like `vendor/model`."""

from __future__ import annotations

from tellback.chat.registry import BuiltinProvider, Embeddings, Provider, prefix_detector, strip_prefix

VENDOR_PREFIXES = (
    *("openrouter/", "ai21/", "amazon/", "anthropic/", "cohere/", "deepseek/", "google/", "meta-llama/", "microsoft/"),
    *("minimax/", "mistralai/", "moonshotai/", "nousresearch/", "nvidia/", "openai/", "perplexity/", "qwen/", "x-ai/"),
    "z-ai/",
)
"""Models of these vendors are recognised by OpenRouter's own names; others need the name `openrouter/vendor/model`."""


def remove_prefix(model: str) -> str:
    """Return OpenRouter's own name: `vendor/model`, but the complete name for `openrouter/auto`."""
    name = strip_prefix("openrouter/")(model)
    return name if "/" in name else model


PROVIDER = BuiltinProvider(
    Provider.OPENROUTER,
    "OpenRouter",
    prefix_detector(*VENDOR_PREFIXES),
    "vendor/model",
    "tellback.chat.providers.openrouter.model:OpenRouterModel",
    remove_prefix,
    base_url="https://openrouter.ai/api/v1",
    key_variables=("OPENROUTER_API_KEY",),
    default_model="openrouter/auto",
    sdk="openai",
    extra="openai",
    price_id="openrouter",
    embeddings=Embeddings(
        {
            "text-embedding-3-small": 1536,
            "text-embedding-3-large": 3072,
            "text-embedding-ada-002": 1536,
            "gemini-embedding-001": 3072,
            "qwen3-embedding-8b": 4096,
        },
        prefixes=("openrouter/", "openai/text-embedding-", "google/gemini-embedding-"),
        shortenable=("text-embedding-3", "gemini-embedding"),
        max_texts=256,
        max_bytes=300_000,
        max_text_bytes=8_000,
    ),
)
