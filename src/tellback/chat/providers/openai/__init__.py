"""OpenAI's chat completions, and the many hosts that speak them.

`codec` encodes requests, decodes replies and reads streams. Import the models from `tellback.chat`.
"""

from tellback.chat.providers.openai.model import CompatibleModel, OllamaModel, OpenAIModel, OpenRouterModel, XaiModel

__all__ = ["CompatibleModel", "OllamaModel", "OpenAIModel", "OpenRouterModel", "XaiModel"]
