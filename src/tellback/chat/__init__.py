"""Models behind one interface: options, the tool loop, budgets, approvals, and the registry of providers.

`providers` holds the adapters, which load their SDKs when used. Turns, agents, memory and applications import this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.exports import lazy_exports

if TYPE_CHECKING:
    from tellback.chat.approval import Approval as Approval
    from tellback.chat.discovery import ModelAtHand as ModelAtHand
    from tellback.chat.discovery import ModelChoice as ModelChoice
    from tellback.chat.discovery import choose_model as choose_model
    from tellback.chat.discovery import survey_models as survey_models
    from tellback.chat.dispatch import dispatch_chat as dispatch_chat
    from tellback.chat.dispatch import dispatch_chat_stream as dispatch_chat_stream
    from tellback.chat.history import repair_history as repair_history
    from tellback.chat.loop import LoopResult as LoopResult
    from tellback.chat.loop import LoopStep as LoopStep
    from tellback.chat.loop import run_loop as run_loop
    from tellback.chat.loop import run_loop_messages as run_loop_messages
    from tellback.chat.loop import run_loop_stream as run_loop_stream
    from tellback.chat.loop import run_loop_stream_messages as run_loop_stream_messages
    from tellback.chat.loop import stream_loop as stream_loop
    from tellback.chat.model import ChatRequest as ChatRequest
    from tellback.chat.model import Model as Model
    from tellback.chat.model import ModelBase as ModelBase
    from tellback.chat.model import ReplyBuilder as ReplyBuilder
    from tellback.chat.offline import OfflineModel as OfflineModel
    from tellback.chat.options import ChatOptions as ChatOptions
    from tellback.chat.options import check_budget as check_budget
    from tellback.chat.options import count_tokens_heuristic as count_tokens_heuristic
    from tellback.chat.options import estimate_system_tokens as estimate_system_tokens
    from tellback.chat.options import estimate_tools_tokens as estimate_tools_tokens
    from tellback.chat.options import format_budget_breakdown as format_budget_breakdown
    from tellback.chat.providers.anthropic import AnthropicModel as AnthropicModel
    from tellback.chat.providers.gemini import GeminiModel as GeminiModel
    from tellback.chat.providers.local import LocalModel as LocalModel
    from tellback.chat.providers.openai import CompatibleModel as CompatibleModel
    from tellback.chat.providers.openai import OllamaModel as OllamaModel
    from tellback.chat.providers.openai import OpenAIModel as OpenAIModel
    from tellback.chat.providers.openai import OpenRouterModel as OpenRouterModel
    from tellback.chat.providers.openai import XaiModel as XaiModel
    from tellback.chat.registry import Provider as Provider
    from tellback.chat.registry import ProviderRegistration as ProviderRegistration
    from tellback.chat.registry import builtin_providers as builtin_providers
    from tellback.chat.registry import close_models as close_models
    from tellback.chat.registry import detect_provider as detect_provider
    from tellback.chat.registry import detect_provider_from as detect_provider_from
    from tellback.chat.registry import open_model as open_model
    from tellback.chat.registry import prefix_detector as prefix_detector
    from tellback.chat.registry import provider_name as provider_name
    from tellback.chat.registry import resolve_registration as resolve_registration
    from tellback.chat.registry import with_providers as with_providers
    from tellback.chat.usage import make_usage as make_usage
    from tellback.errors import BudgetExceededError as BudgetExceededError
    from tellback.errors import MaxIterationsError as MaxIterationsError
    from tellback.errors import UnknownModelError as UnknownModelError
    from tellback.types import ChatReply as ChatReply
    from tellback.types import ChatUsage as ChatUsage
    from tellback.types import Message as Message
    from tellback.types import MessagePart as MessagePart
    from tellback.types import ReplyDelta as ReplyDelta
    from tellback.types import StreamStop as StreamStop
    from tellback.types import TextDelta as TextDelta
    from tellback.types import ThinkingDelta as ThinkingDelta
    from tellback.types import ToolUseEnd as ToolUseEnd
    from tellback.types import ToolUseInputDelta as ToolUseInputDelta
    from tellback.types import ToolUseStart as ToolUseStart
    from tellback.types import assistant_message as assistant_message
    from tellback.types import audio_part as audio_part
    from tellback.types import file_part as file_part
    from tellback.types import flatten_parts as flatten_parts
    from tellback.types import image_part as image_part
    from tellback.types import message_text as message_text
    from tellback.types import render_part as render_part
    from tellback.types import system_message as system_message
    from tellback.types import text_part as text_part
    from tellback.types import tool_result_message as tool_result_message
    from tellback.types import user_message as user_message
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tellback.chat.approval": "Approval",
            "tellback.chat.discovery": "ModelAtHand ModelChoice choose_model survey_models",
            "tellback.chat.dispatch": "dispatch_chat dispatch_chat_stream",
            "tellback.chat.history": "repair_history",
            "tellback.chat.loop": """
                LoopResult LoopStep run_loop run_loop_messages run_loop_stream
                run_loop_stream_messages stream_loop
            """,
            "tellback.chat.model": "ChatRequest Model ModelBase ReplyBuilder",
            "tellback.chat.offline": "OfflineModel",
            "tellback.chat.options": """
                ChatOptions check_budget count_tokens_heuristic estimate_system_tokens
                estimate_tools_tokens format_budget_breakdown
            """,
            "tellback.chat.providers.anthropic": "AnthropicModel",
            "tellback.chat.providers.gemini": "GeminiModel",
            "tellback.chat.providers.local": "LocalModel",
            "tellback.chat.providers.openai": "CompatibleModel OllamaModel OpenAIModel OpenRouterModel XaiModel",
            "tellback.chat.registry": """
                Provider ProviderRegistration builtin_providers close_models detect_provider
                detect_provider_from open_model prefix_detector provider_name resolve_registration
                with_providers
            """,
            "tellback.chat.usage": "make_usage",
            "tellback.errors": "BudgetExceededError MaxIterationsError UnknownModelError",
            "tellback.types": """
                ChatReply ChatUsage Message MessagePart ReplyDelta StreamStop TextDelta
                ThinkingDelta ToolUseEnd ToolUseInputDelta ToolUseStart assistant_message audio_part
                file_part flatten_parts image_part message_text render_part system_message text_part
                tool_result_message user_message
            """,
        },
    )
