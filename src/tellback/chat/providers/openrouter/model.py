"""`OpenRouterModel`."""

from __future__ import annotations

from typing import Unpack

from tellback.chat.model import ModelOptions
from tellback.chat.providers.chat_completions import OpenAIDialect, OpenAIModel
from tellback.chat.providers.openrouter import PROVIDER


class OpenRouterModel(OpenAIModel):
    """Any model at OpenRouter, named `vendor/model`. The key is `api_key` or OPENROUTER_API_KEY.

    `site_url` and `site_name` identify your application in OpenRouter's rankings.

    >>> OpenRouterModel("anthropic/claude-sonnet-5", site_name="My app")
    OpenRouterModel('anthropic/claude-sonnet-5')
    """

    declaration = PROVIDER
    provider = PROVIDER.display_name
    dialect = OpenAIDialect(cache_control=True, reasoning_details=True)

    def __init__(
        self, model: str, *, site_url: str | None = None, site_name: str | None = None, **options: Unpack[ModelOptions]
    ) -> None:
        super().__init__(model, **options)
        site_headers = {"HTTP-Referer": site_url, "X-Title": site_name}
        self.headers = {name: value for name, value in site_headers.items() if value}
