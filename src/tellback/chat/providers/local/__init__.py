"""A GGUF file that answers in this process, by llama.cpp."""

from tellback.chat.providers.local.model import LocalModel

__all__ = ["LocalModel"]
