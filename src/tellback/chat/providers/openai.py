"""OpenAI. `OpenAIModel` is in `chat_completions`, since the models of many other hosts derive from it."""

from __future__ import annotations

from tellback.chat.registry import BuiltinProvider, Embeddings, Provider, prefix_detector

PROVIDER = BuiltinProvider(
    Provider.OPENAI,
    "OpenAI",
    prefix_detector("gpt-", "chatgpt-", "o1", "o3", "o4"),
    "gpt-..., o4-mini",
    "tellback.chat.providers.chat_completions:OpenAIModel",
    key_variables=("OPENAI_API_KEY",),
    default_model="gpt-5",
    sdk="openai",
    extra="openai",
    audio=True,
    price_id="openai",
    embeddings=Embeddings(
        {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536},
        default_model="text-embedding-3-small",
        prefixes=("text-embedding-",),
        shortenable=("text-embedding-3",),
        max_texts=2048,
        max_bytes=300_000,
        max_text_bytes=8_000,
    ),
)
