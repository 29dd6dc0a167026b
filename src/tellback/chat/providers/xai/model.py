"""`XaiModel`, which is a public name; other hosts with OpenAI's API need no class."""

from __future__ import annotations

from tellback.chat.providers.chat_completions import COMPATIBLE_DIALECT, OpenAIModel
from tellback.chat.providers.xai import PROVIDER


class XaiModel(OpenAIModel):
    """xAI's Grok models. The key is `api_key` or XAI_API_KEY.

    >>> XaiModel("grok-4")
    XaiModel('grok-4')
    """

    declaration = PROVIDER
    provider = PROVIDER.display_name
    dialect = COMPATIBLE_DIALECT
