"""A GGUF file that answers in this process, by llama.cpp."""

from recollect.chat.providers.local.model import LocalModel

__all__ = ["LocalModel"]
