"""`LocalModel`: a GGUF file that answers in this process, by llama.cpp.

`model` loads and runs the file, `codec` encodes requests and decodes answers. Import it from `tellback.chat`.
"""

from tellback.chat.providers.local.model import LocalModel

__all__ = ["LocalModel"]
