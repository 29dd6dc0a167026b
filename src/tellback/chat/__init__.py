"""Models behind one interface: options, the tool loop, budgets, approvals, and the registry of providers.

`providers` holds the adapters, which load their SDKs when used. Turns, agents, memory and applications import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tellback.chat.approval import Approval
from tellback.chat.discovery import ModelAtHand, ModelChoice, choose_model, survey_models
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
    from tellback.chat.providers import (
        AnthropicModel,
        CompatibleModel,
        GeminiModel,
        LocalModel,
        OllamaModel,
        OpenAIModel,
        OpenRouterModel,
        XaiModel,
    )

_ADAPTERS = (
    *("AnthropicModel", "CompatibleModel", "GeminiModel", "LocalModel", "OllamaModel", "OpenAIModel"),
    *("OpenRouterModel", "XaiModel"),
)

__all__ = [
    "AnthropicModel",
    "Approval",
    "BudgetExceededError",
    "ChatOptions",
    "ChatReply",
    "ChatRequest",
    "ChatUsage",
    "CompatibleModel",
    "GeminiModel",
    "LocalModel",
    "LoopResult",
    "LoopStep",
    "MaxIterationsError",
    "Message",
    "MessagePart",
    "Model",
    "ModelAtHand",
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
    if name in _ADAPTERS:
        from tellback.chat import providers

        return getattr(providers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
