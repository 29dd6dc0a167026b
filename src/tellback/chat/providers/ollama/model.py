"""`OllamaModel`."""

from __future__ import annotations

import os
from typing import Unpack

from tellback.chat.model import ModelOptions
from tellback.chat.providers.chat_completions import CompatibleModel
from tellback.chat.providers.ollama import OLLAMA_VARIABLE, PROVIDER, build_ollama_url


class OllamaModel(CompatibleModel):
    """A model of an Ollama server: the one at OLLAMA_HOST, or the one on this machine.

    >>> OllamaModel("llama3.3").provider
    'Ollama'
    """

    declaration = PROVIDER
    provider = PROVIDER.display_name

    def __init__(self, model: str, **options: Unpack[ModelOptions]) -> None:
        host = os.environ.get(OLLAMA_VARIABLE)
        if host and options.get("base_url") is None and options.get("client") is None:
            options["base_url"] = f"{build_ollama_url(host)}/v1"
        super().__init__(model, **options)
