"""Google's Gemini API. `model` has `GeminiModel` and the encoding of messages, replies and streams."""

from __future__ import annotations

from tellback.chat.registry import BuiltinProvider, Embeddings, Provider, prefix_detector

PROVIDER = BuiltinProvider(
    Provider.GEMINI,
    "Gemini",
    prefix_detector("gemini", "models/gemini", "gemma"),
    "gemini-...",
    "tellback.chat.providers.gemini.model:GeminiModel",
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    default_model="gemini-2.5-flash",
    sdk="google.genai",
    extra="gemini",
    audio=True,
    settings={
        **{name: name for name in ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")},
        "stop": "stop_sequences",
    },
    price_id="google",
    otel_name="gcp.gemini",
    embeddings=Embeddings(
        {"gemini-embedding-001": 3072, "gemini-embedding-2": 3072, "text-embedding-004": 768},
        default_model="gemini-embedding-001",
        prefixes=("gemini-embedding-", "models/gemini-embedding-", "text-embedding-004"),
        shortenable=("gemini-embedding", "text-embedding-004"),
        max_texts=100,
        max_bytes=80_000,
        max_text_bytes=6_000,
    ),
)
