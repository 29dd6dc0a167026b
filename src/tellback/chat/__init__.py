"""Models with one interface: options, the tool loop, budgets, approvals, and the registry of providers.

`providers` has the adapters, which load their SDKs when first used. Turns, agents, memory and applications import this.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tellback.chat.approval import Approval
from tellback.chat.discovery import ModelChoice, choose_model, survey_models
from tellback.chat.dispatch import dispatch_chat, dispatch_chat_stream
from tellback.chat.history import repair_history
from tellback.chat.loop import (
    LoopResult,
    LoopStep,
    run_loop,
    run_loop_messages,
    run_loop_stream,
    run_loop_stream_messages,
    stream_loop,
)
from tellback.chat.model import ChatRequest, Model, ModelBase, ReplyBuilder
from tellback.chat.offline import OfflineModel
from tellback.chat.options import (
    ChatOptions,
    check_budget,
    count_tokens_heuristic,
    estimate_system_tokens,
    estimate_tools_tokens,
    format_budget_breakdown,
)
from tellback.chat.registry import (
    FoundModel,
    Provider,
    ProviderRegistration,
    builtin_providers,
    close_models,
    detect_provider,
    detect_provider_from,
    open_model,
    prefix_detector,
    provider_name,
    resolve_registration,
    with_providers,
)
from tellback.chat.usage import make_usage
from tellback.errors import BudgetExceededError, MaxIterationsError, UnknownModelError
from tellback.types import (
    ChatReply,
    ChatUsage,
    Message,
    MessagePart,
    ReplyDelta,
    StreamStop,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
    assistant_message,
    audio_part,
    file_part,
    flatten_parts,
    image_part,
    message_text,
    render_part,
    system_message,
    text_part,
    tool_result_message,
    user_message,
)

if TYPE_CHECKING:
    from tellback.chat.providers.anthropic.model import AnthropicModel
    from tellback.chat.providers.chat_completions import CompatibleModel, OpenAIModel
    from tellback.chat.providers.gemini.model import GeminiModel
    from tellback.chat.providers.local.model import LocalModel
    from tellback.chat.providers.ollama.model import OllamaModel
    from tellback.chat.providers.openrouter.model import OpenRouterModel
    from tellback.chat.providers.xai.model import XaiModel

_LAZY_EXPORTS = {
    "AnthropicModel": "anthropic.model",
    "CompatibleModel": "chat_completions",
    "GeminiModel": "gemini.model",
    "LocalModel": "local.model",
    "OllamaModel": "ollama.model",
    "OpenAIModel": "chat_completions",
    "OpenRouterModel": "openrouter.model",
    "XaiModel": "xai.model",
}

__all__ = [
    "AnthropicModel",
    "Approval",
    "BudgetExceededError",
    "ChatOptions",
    "ChatReply",
    "ChatRequest",
    "ChatUsage",
    "CompatibleModel",
    "FoundModel",
    "GeminiModel",
    "LocalModel",
    "LoopResult",
    "LoopStep",
    "MaxIterationsError",
    "Message",
    "MessagePart",
    "Model",
    "ModelBase",
    "ModelChoice",
    "OfflineModel",
    "OllamaModel",
    "OpenAIModel",
    "OpenRouterModel",
    "Provider",
    "ProviderRegistration",
    "ReplyBuilder",
    "ReplyDelta",
    "StreamStop",
    "TextDelta",
    "ThinkingDelta",
    "ToolUseEnd",
    "ToolUseInputDelta",
    "ToolUseStart",
    "UnknownModelError",
    "XaiModel",
    "assistant_message",
    "audio_part",
    "builtin_providers",
    "check_budget",
    "choose_model",
    "close_models",
    "count_tokens_heuristic",
    "detect_provider",
    "detect_provider_from",
    "dispatch_chat",
    "dispatch_chat_stream",
    "estimate_system_tokens",
    "estimate_tools_tokens",
    "file_part",
    "flatten_parts",
    "format_budget_breakdown",
    "image_part",
    "make_usage",
    "message_text",
    "open_model",
    "prefix_detector",
    "provider_name",
    "render_part",
    "repair_history",
    "resolve_registration",
    "run_loop",
    "run_loop_messages",
    "run_loop_stream",
    "run_loop_stream_messages",
    "stream_loop",
    "survey_models",
    "system_message",
    "text_part",
    "tool_result_message",
    "user_message",
    "with_providers",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY_EXPORTS:
        return getattr(import_module(f"tellback.chat.providers.{_LAZY_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
