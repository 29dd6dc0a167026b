"""Tellback: conversational agents that remember.

These are the names that most programs need. Import other names from their modules: `tellback.agent`, `tellback.chat`,
`tellback.memory`, `tellback.sessions`, `tellback.errors` … A name is loaded when it is first used, so `import tellback`
is fast.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tellback.exports import lazy_exports

if sys.version_info < (3, 11):  # noqa: UP036 - installers check the version, but a checkout needs no installer
    raise ImportError(f"Tellback needs Python 3.11 or later, but this is Python {sys.version.split()[0]}.")

__version__ = "0.1.0"

_EXPORTS = {
    "tellback.agent": """
        Agent CannedResponse Capability CompositionMode create_session define_tool END_ROUTE Guideline
        Persistence Response Route SessionState State StreamChunk Term ToolContext
    """,
    "tellback.app": "Tellback",
    "tellback.chat": """
        AnthropicModel Approval ChatOptions ChatRequest CompatibleModel GeminiModel LocalModel LoopResult Model
        OllamaModel open_model OpenAIModel OpenRouterModel run_loop run_loop_messages run_loop_stream
        stream_loop
    """,
    "tellback.client": "TellbackClient",
    "tellback.errors": "ConfigurationError InvalidArgumentError NotFoundError ProviderError StoreError TellbackError",
    "tellback.jobs": "WorkerOptions",
    "tellback.memory.tools": "memory_tools",
    "tellback.skills": "load_skills Skill skill",
    "tellback.tools": "Tool tool",
    "tellback.tools.mcp": "mcp_tools McpServer",
    "tellback.turn": "Attachment run_chat_turn TurnConfig TurnInput TurnResult",
    "tellback.types": """
        assistant_message ChatReply ChatUsage file_part image_part Message message_text MessagePart ReplyDelta
        StreamStop system_message text_part TextDelta tool_result_message ToolCall ToolResult user_message
    """,
    "tellback.types.conversations": "Conversation Identity Session StoredMessage",
    "tellback.types.memory": "Atom Category Entity MemorySpace RecallResult WorkingContext",
    "tellback.user": "User",
}
_UNLISTED = {
    "tellback.agent": """
        adapt_event AgentStructuredResponse BuiltInSection create_message_event create_tool_event DomainRegistry
        enter_route enter_state EventKind EventSource generate_route_id generate_state_id generate_tool_id
        merge_extracted PromptBuilder session_data_to_state session_state_to_data
    """,
    "tellback.chat": "make_usage ProviderRegistration run_loop_stream_messages with_providers",
    "tellback.errors": "BudgetExceededError ConversationClosedError MaxIterationsError UnknownModelError",
    "tellback.sessions": """
        InMemoryAdapter MongoAdapter OpenSearchAdapter PersistenceAdapter PostgresAdapter RedisAdapter
        SqlAlchemyAdapter SqliteAdapter
    """,
    "tellback.skills": "SkillResolver",
    "tellback.types": "ThinkingDelta ToolUseEnd ToolUseInputDelta ToolUseStart",
    "tellback.types.access": "Scope",
    "tellback.types.conversations": "Event MessageData SessionData",
}
"""Names that are importable from here for older programs. New programs import them from their modules."""

if TYPE_CHECKING:
    from tellback.agent import END_ROUTE as END_ROUTE
    from tellback.agent import Agent as Agent
    from tellback.agent import CannedResponse as CannedResponse
    from tellback.agent import Capability as Capability
    from tellback.agent import CompositionMode as CompositionMode
    from tellback.agent import Guideline as Guideline
    from tellback.agent import Persistence as Persistence
    from tellback.agent import Response as Response
    from tellback.agent import Route as Route
    from tellback.agent import SessionState as SessionState
    from tellback.agent import State as State
    from tellback.agent import StreamChunk as StreamChunk
    from tellback.agent import Term as Term
    from tellback.agent import ToolContext as ToolContext
    from tellback.agent import create_session as create_session
    from tellback.agent import define_tool as define_tool
    from tellback.app import Tellback as Tellback
    from tellback.chat import AnthropicModel as AnthropicModel
    from tellback.chat import Approval as Approval
    from tellback.chat import ChatOptions as ChatOptions
    from tellback.chat import ChatRequest as ChatRequest
    from tellback.chat import CompatibleModel as CompatibleModel
    from tellback.chat import GeminiModel as GeminiModel
    from tellback.chat import LocalModel as LocalModel
    from tellback.chat import LoopResult as LoopResult
    from tellback.chat import Model as Model
    from tellback.chat import OllamaModel as OllamaModel
    from tellback.chat import OpenAIModel as OpenAIModel
    from tellback.chat import OpenRouterModel as OpenRouterModel
    from tellback.chat import open_model as open_model
    from tellback.chat import run_loop as run_loop
    from tellback.chat import run_loop_messages as run_loop_messages
    from tellback.chat import run_loop_stream as run_loop_stream
    from tellback.chat import stream_loop as stream_loop
    from tellback.client import TellbackClient as TellbackClient
    from tellback.errors import ConfigurationError as ConfigurationError
    from tellback.errors import InvalidArgumentError as InvalidArgumentError
    from tellback.errors import NotFoundError as NotFoundError
    from tellback.errors import ProviderError as ProviderError
    from tellback.errors import StoreError as StoreError
    from tellback.errors import TellbackError as TellbackError
    from tellback.jobs import WorkerOptions as WorkerOptions
    from tellback.memory.tools import memory_tools as memory_tools
    from tellback.skills import Skill as Skill
    from tellback.skills import load_skills as load_skills
    from tellback.skills import skill as skill
    from tellback.tools import Tool as Tool
    from tellback.tools import tool as tool
    from tellback.tools.mcp import McpServer as McpServer
    from tellback.tools.mcp import mcp_tools as mcp_tools
    from tellback.turn import Attachment as Attachment
    from tellback.turn import TurnConfig as TurnConfig
    from tellback.turn import TurnInput as TurnInput
    from tellback.turn import TurnResult as TurnResult
    from tellback.turn import run_chat_turn as run_chat_turn
    from tellback.types import ChatReply as ChatReply
    from tellback.types import ChatUsage as ChatUsage
    from tellback.types import Message as Message
    from tellback.types import MessagePart as MessagePart
    from tellback.types import ReplyDelta as ReplyDelta
    from tellback.types import StreamStop as StreamStop
    from tellback.types import TextDelta as TextDelta
    from tellback.types import ToolCall as ToolCall
    from tellback.types import ToolResult as ToolResult
    from tellback.types import assistant_message as assistant_message
    from tellback.types import file_part as file_part
    from tellback.types import image_part as image_part
    from tellback.types import message_text as message_text
    from tellback.types import system_message as system_message
    from tellback.types import text_part as text_part
    from tellback.types import tool_result_message as tool_result_message
    from tellback.types import user_message as user_message
    from tellback.types.conversations import Conversation as Conversation
    from tellback.types.conversations import Identity as Identity
    from tellback.types.conversations import Session as Session
    from tellback.types.conversations import StoredMessage as StoredMessage
    from tellback.types.memory import Atom as Atom
    from tellback.types.memory import Category as Category
    from tellback.types.memory import Entity as Entity
    from tellback.types.memory import MemorySpace as MemorySpace
    from tellback.types.memory import RecallResult as RecallResult
    from tellback.types.memory import WorkingContext as WorkingContext
    from tellback.user import User as User
else:  # with `__getattr__`, a type checker would accept any name
    __all__, __getattr__, __dir__ = lazy_exports(__name__, _EXPORTS, _UNLISTED)
    __all__ += ["__version__"]
