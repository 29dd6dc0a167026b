"""OpenAI's chat completions, and the many hosts that speak them."""

from tellback.chat.providers.openai.model import CompatibleModel, OllamaModel, OpenAIModel, OpenRouterModel, XaiModel

__all__ = ["CompatibleModel", "OllamaModel", "OpenAIModel", "OpenRouterModel", "XaiModel"]
