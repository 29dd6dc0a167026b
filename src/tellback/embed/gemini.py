"""`GeminiEmbedder`: Google's embedding models through the `google-genai` SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from tellback.chat.providers.gemini import GeminiModel
from tellback.chat.providers.pace import IdleTimeout
from tellback.embed.remote import BatchLimits, EmbedderOptions, ProviderEmbedder
from tellback.errors import ConfigurationError


class GeminiEmbedder(ProviderEmbedder):
    """Gemini's embedding models. The key is `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY.

    For Google Cloud, pass `client=`. They tell questions from what is searched: `query=True` matters here.

    >>> GeminiEmbedder("gemini-embedding-001", dimensions=768).name
    'gemini/gemini-embedding-001-768'
    """

    prefix = "gemini"
    limits = BatchLimits(max_texts=100, max_bytes=80_000, max_text_bytes=6_000)
    model_dimensions: Mapping[str, int] = {
        "gemini-embedding-001": 3072,
        "gemini-embedding-2": 3072,
        "text-embedding-004": 768,
    }
    shortenable_prefixes = ("gemini-embedding", "text-embedding-004")

    def __init__(
        self, model: str = "gemini-embedding-001", *, dimensions: int | None = None, **options: Unpack[EmbedderOptions]
    ) -> None:
        super().__init__(GeminiModel(model.removeprefix("models/"), **options), dimensions)

    async def _request(self, texts: list[str], query: bool, pace: IdleTimeout) -> Any:
        from google.genai import types
        from pydantic import ValidationError

        # One attempt: the SDK would retry on its own. Its timeout must not undercut ours.
        http_options = {"retry_options": {"attempts": 1}, "timeout": round((self._model.timeout + 30) * 1000)}
        config: dict[str, Any] = {**self._model.config}
        config["http_options"] = {**http_options, **config.get("http_options", {})}
        if self._requested_dimensions:
            config["output_dimensionality"] = self._requested_dimensions
        if "gemini-embedding-2" in self.model:
            # It ignores task types, and wants to be told in words.
            instruction = "task: search result | query: " if query else "title: none | text: "
            texts = [instruction + text for text in texts]
        else:
            config.setdefault("task_type", "RETRIEVAL_QUERY" if query else "RETRIEVAL_DOCUMENT")
        try:
            request_config = types.EmbedContentConfig.model_validate(config)
        except ValidationError as error:
            fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
            raise ConfigurationError(
                f"Gemini does not take {fields}: see google-genai's EmbedContentConfig."
            ) from error
        # As contents, not as texts: the SDK would make one content, and so one vector, of several texts.
        contents = [types.Content(role="user", parts=[types.Part(text=text)]) for text in texts]
        client = self._model.client
        models = getattr(client, "aio", client).models
        # Google Cloud takes one at a time.
        groups = [[content] for content in contents] if getattr(client, "vertexai", False) else [contents]
        values = []
        for group in groups:
            try:
                response = await pace.wait(
                    models.embed_content(model=self.model, contents=group, config=request_config)
                )
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                # The SDK takes the answer apart without a look at its shape.
                raise self._unreadable_response(f"{type(error).__name__}: {error}") from error
            values += [embedding.values for embedding in response.embeddings or ()]
        return values
