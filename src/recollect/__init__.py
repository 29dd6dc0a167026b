"""Recollect: conversational agents that remember.

Names are loaded when first used, so `import recollect` costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - from a checkout; only an installer would refuse it
    raise ImportError(f"Recollect needs Python 3.11 or later, and this is {sys.version.split()[0]}.")

__version__ = "0.1.0"

_EXPORTS = {
    "recollect.admin": ("Erased", "ExportReport"),
    "recollect.agent": (
        *("Agent", "AgentStructuredResponse", "BuiltInSection", "CannedResponse", "Capability", "CompositionMode"),
        *("DomainRegistry", "END_ROUTE", "EventKind", "EventSource", "Guideline", "InMemorySessions", "Limits"),
        *(
            "MemoryOptions",
            "Persistence",
            "PromptBuilder",
            "Response",
            "Route",
            "SessionState",
            "SessionStore",
            "State",
        ),
        *("StreamChunk", "Term", "Thresholds", "ToolContext", "ToolUpdate", "adapt_event", "create_message_event"),
        *("create_session", "create_tool_event", "define_tool", "enter_route", "enter_state", "generate_route_id"),
        *("generate_state_id", "generate_tool_id", "merge_extracted", "session_data_to_state"),
        *("session_state_to_data",),
    ),
    "recollect.app": ("Recollect",),
    "recollect.client": ("RecollectClient",),
    "recollect.embed": ("Embedder", "FunctionEmbedder", "OnnxEmbedder", "StaticEmbedder", "resolve_embedder"),
    "recollect.errors": (
        *("AtomSupersededError", "BudgetExceededError", "ChatError", "EmbeddingError", "ConfigurationError"),
        *("ConversationClosedError", "ExtractionError", "JobLostError"),
        *("InvalidArgumentError", "MaxIterationsError", "MissingExtraError", "MissingKeyError", "NotFoundError"),
        *("OutputValidationError", "ProviderAuthError", "ProviderConnectionError", "ProviderError"),
        *("ProviderOverloadedError", "ProviderRateLimitError", "ProviderRequestError", "ProviderResponseError"),
        *("ProviderTimeoutError", "RecollectError", "SchemaVersionError", "StoreBusyError", "StoreClosedError"),
        *("StoreCorruptError", "StoreError", "StoreFullError", "StoreReadOnlyError", "StoreUnavailableError"),
        *("ToolError", "ToolSchemaError", "TurnConflictError", "UnknownModelError", "AgentSpecError"),
        *(
            "AlreadyAnsweredError",
            "AlreadyDecidedError",
            "CannedResponseError",
            "FlowError",
            "McpError",
            "SessionConflictError",
            "SkillError",
        ),
        *("AccessError", "IdempotencyConflictError", "NotAllowedError", "NotAuthenticatedError", "RateLimitedError"),
        *("PreconditionFailedError", "RemoteError", "RemoteUnavailableError", "RequestError", "RequestInProgressError"),
        *("RequestTooLargeError",),
    ),
    "recollect.jobs": ("WorkerOptions",),
    "recollect.memory.extraction.llm": ("LlmExtractor",),
    "recollect.memory.extraction.replay": ("ReplayProgress", "ReplayReport"),
    "recollect.memory.extraction.values": ("ExtractedEntity", "ExtractedFact", "Extraction", "Window"),
    "recollect.memory.pattern_mining": ("PatternMining",),
    "recollect.memory.tools": (
        *("Forget", "RecallByEntity", "RecallByTopic", "RecallTimeline", "Remember", "memory_tools"),
    ),
    "recollect.skills": ("Skill", "SkillResolver", "load_skills", "skill"),
    "recollect.specs": ("AgentSpec", "load_spec"),
    "recollect.stores.sessions.adapter": ("PersistenceAdapter",),
    "recollect.stores.sessions.memory": ("InMemoryAdapter",),
    "recollect.stores.sessions.mongo": ("MongoAdapter",),
    "recollect.stores.sessions.opensearch": ("OpenSearchAdapter",),
    "recollect.stores.sessions.postgres": ("PostgresAdapter",),
    "recollect.stores.sessions.redis": ("RedisAdapter",),
    "recollect.stores.sessions.sqlalchemy": ("SqlAlchemyAdapter",),
    "recollect.stores.sessions.sqlite": ("SqliteAdapter",),
    "recollect.tools.mcp": ("McpServer", "mcp_tools"),
    "recollect.turn": ("Attachment", "TurnConfig", "TurnInput", "TurnResult", "run_chat_turn"),
    "recollect.types": (
        *("ChatReply", "ChatUsage", "Message", "MessagePart", "ReplyDelta", "StreamStop", "TextDelta"),
        *("ThinkingDelta", "ToolCall", "ToolResult", "ToolUseEnd", "ToolUseInputDelta", "ToolUseStart"),
        *("assistant_message", "audio_part", "file_part", "image_part", "message_text", "system_message"),
        *("text_part", "tool_result_message", "user_message"),
    ),
    "recollect.types.access": ("ApiKey", "NewApiKey"),
    "recollect.types.bindings": ("Binding", "ConversationScope", "ExtractionPolicy"),
    "recollect.types.blocks": ("MediaBlock", "TextBlock", "ToolResultBlock", "ToolUseBlock"),
    "recollect.types.conversations": (
        *("AssistantTurn", "Conversation", "Event", "RollingSummary", "StoredMessage", "TurnOutcome"),
    ),
    "recollect.types.context": ("WorkingContext",),
    "recollect.types.jobs": ("ExtractionRun", "Job", "JobStatus", "UsageRecord", "UsageTotal"),
    "recollect.types.memory": (
        *("Atom", "AtomStatus", "Category", "CategoryKind", "Citation", "Entity", "EntityType", "MemorySpace"),
        *("RecallHit", "RecallMode", "RecallResult"),
    ),
    "recollect.types.scope": ("Scope",),
    "recollect.types.sessions": ("MessageData", "SessionData"),
    "recollect.types.turns": ("Identity", "Session", "TurnProblem"),
    "recollect.user": ("User",),
    "recollect.tools": ("Tool", "tool"),
    "recollect.chat": (
        *("AnthropicModel", "Approval", "ChatOptions", "ChatRequest", "CompatibleModel", "GeminiModel"),
        *(
            "LocalModel",
            "LoopResult",
            "Model",
            "OfflineModel",
            "OllamaModel",
            "OpenAIModel",
            "OpenRouterModel",
            "ProviderRegistration",
        ),
        *("XaiModel", "make_usage", "open_model", "run_loop", "run_loop_messages", "run_loop_stream"),
        *("run_loop_stream_messages", "stream_loop", "with_providers"),
    ),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

if TYPE_CHECKING:
    from recollect.admin import Erased as Erased
    from recollect.admin import ExportReport as ExportReport
    from recollect.agent import END_ROUTE as END_ROUTE
    from recollect.agent import Agent as Agent
    from recollect.agent import AgentStructuredResponse as AgentStructuredResponse
    from recollect.agent import BuiltInSection as BuiltInSection
    from recollect.agent import CannedResponse as CannedResponse
    from recollect.agent import Capability as Capability
    from recollect.agent import CompositionMode as CompositionMode
    from recollect.agent import DomainRegistry as DomainRegistry
    from recollect.agent import EventKind as EventKind
    from recollect.agent import EventSource as EventSource
    from recollect.agent import Guideline as Guideline
    from recollect.agent import InMemorySessions as InMemorySessions
    from recollect.agent import Limits as Limits
    from recollect.agent import MemoryOptions as MemoryOptions
    from recollect.agent import Persistence as Persistence
    from recollect.agent import PromptBuilder as PromptBuilder
    from recollect.agent import Response as Response
    from recollect.agent import Route as Route
    from recollect.agent import SessionState as SessionState
    from recollect.agent import SessionStore as SessionStore
    from recollect.agent import State as State
    from recollect.agent import StreamChunk as StreamChunk
    from recollect.agent import Term as Term
    from recollect.agent import Thresholds as Thresholds
    from recollect.agent import ToolContext as ToolContext
    from recollect.agent import ToolUpdate as ToolUpdate
    from recollect.agent import adapt_event as adapt_event
    from recollect.agent import create_message_event as create_message_event
    from recollect.agent import create_session as create_session
    from recollect.agent import create_tool_event as create_tool_event
    from recollect.agent import define_tool as define_tool
    from recollect.agent import enter_route as enter_route
    from recollect.agent import enter_state as enter_state
    from recollect.agent import generate_route_id as generate_route_id
    from recollect.agent import generate_state_id as generate_state_id
    from recollect.agent import generate_tool_id as generate_tool_id
    from recollect.agent import merge_extracted as merge_extracted
    from recollect.agent import session_data_to_state as session_data_to_state
    from recollect.agent import session_state_to_data as session_state_to_data
    from recollect.app import Recollect as Recollect
    from recollect.chat import AnthropicModel as AnthropicModel
    from recollect.chat import Approval as Approval
    from recollect.chat import ChatOptions as ChatOptions
    from recollect.chat import ChatRequest as ChatRequest
    from recollect.chat import CompatibleModel as CompatibleModel
    from recollect.chat import GeminiModel as GeminiModel
    from recollect.chat import LocalModel as LocalModel
    from recollect.chat import LoopResult as LoopResult
    from recollect.chat import Model as Model
    from recollect.chat import OfflineModel as OfflineModel
    from recollect.chat import OllamaModel as OllamaModel
    from recollect.chat import OpenAIModel as OpenAIModel
    from recollect.chat import OpenRouterModel as OpenRouterModel
    from recollect.chat import ProviderRegistration as ProviderRegistration
    from recollect.chat import XaiModel as XaiModel
    from recollect.chat import make_usage as make_usage
    from recollect.chat import open_model as open_model
    from recollect.chat import run_loop as run_loop
    from recollect.chat import run_loop_messages as run_loop_messages
    from recollect.chat import run_loop_stream as run_loop_stream
    from recollect.chat import run_loop_stream_messages as run_loop_stream_messages
    from recollect.chat import stream_loop as stream_loop
    from recollect.chat import with_providers as with_providers
    from recollect.client import RecollectClient as RecollectClient
    from recollect.embed import Embedder as Embedder
    from recollect.embed import FunctionEmbedder as FunctionEmbedder
    from recollect.embed import OnnxEmbedder as OnnxEmbedder
    from recollect.embed import StaticEmbedder as StaticEmbedder
    from recollect.embed import resolve_embedder as resolve_embedder
    from recollect.errors import AccessError as AccessError
    from recollect.errors import AgentSpecError as AgentSpecError
    from recollect.errors import AlreadyAnsweredError as AlreadyAnsweredError
    from recollect.errors import AlreadyDecidedError as AlreadyDecidedError
    from recollect.errors import AtomSupersededError as AtomSupersededError
    from recollect.errors import BudgetExceededError as BudgetExceededError
    from recollect.errors import CannedResponseError as CannedResponseError
    from recollect.errors import ChatError as ChatError
    from recollect.errors import ConfigurationError as ConfigurationError
    from recollect.errors import ConversationClosedError as ConversationClosedError
    from recollect.errors import EmbeddingError as EmbeddingError
    from recollect.errors import ExtractionError as ExtractionError
    from recollect.errors import FlowError as FlowError
    from recollect.errors import IdempotencyConflictError as IdempotencyConflictError
    from recollect.errors import InvalidArgumentError as InvalidArgumentError
    from recollect.errors import JobLostError as JobLostError
    from recollect.errors import MaxIterationsError as MaxIterationsError
    from recollect.errors import McpError as McpError
    from recollect.errors import MissingExtraError as MissingExtraError
    from recollect.errors import MissingKeyError as MissingKeyError
    from recollect.errors import NotAllowedError as NotAllowedError
    from recollect.errors import NotAuthenticatedError as NotAuthenticatedError
    from recollect.errors import NotFoundError as NotFoundError
    from recollect.errors import OutputValidationError as OutputValidationError
    from recollect.errors import PreconditionFailedError as PreconditionFailedError
    from recollect.errors import ProviderAuthError as ProviderAuthError
    from recollect.errors import ProviderConnectionError as ProviderConnectionError
    from recollect.errors import ProviderError as ProviderError
    from recollect.errors import ProviderOverloadedError as ProviderOverloadedError
    from recollect.errors import ProviderRateLimitError as ProviderRateLimitError
    from recollect.errors import ProviderRequestError as ProviderRequestError
    from recollect.errors import ProviderResponseError as ProviderResponseError
    from recollect.errors import ProviderTimeoutError as ProviderTimeoutError
    from recollect.errors import RateLimitedError as RateLimitedError
    from recollect.errors import RecollectError as RecollectError
    from recollect.errors import RemoteError as RemoteError
    from recollect.errors import RemoteUnavailableError as RemoteUnavailableError
    from recollect.errors import RequestError as RequestError
    from recollect.errors import RequestInProgressError as RequestInProgressError
    from recollect.errors import RequestTooLargeError as RequestTooLargeError
    from recollect.errors import SchemaVersionError as SchemaVersionError
    from recollect.errors import SessionConflictError as SessionConflictError
    from recollect.errors import SkillError as SkillError
    from recollect.errors import StoreBusyError as StoreBusyError
    from recollect.errors import StoreClosedError as StoreClosedError
    from recollect.errors import StoreCorruptError as StoreCorruptError
    from recollect.errors import StoreError as StoreError
    from recollect.errors import StoreFullError as StoreFullError
    from recollect.errors import StoreReadOnlyError as StoreReadOnlyError
    from recollect.errors import StoreUnavailableError as StoreUnavailableError
    from recollect.errors import ToolError as ToolError
    from recollect.errors import ToolSchemaError as ToolSchemaError
    from recollect.errors import TurnConflictError as TurnConflictError
    from recollect.errors import UnknownModelError as UnknownModelError
    from recollect.jobs import WorkerOptions as WorkerOptions
    from recollect.memory.extraction.llm import LlmExtractor as LlmExtractor
    from recollect.memory.extraction.replay import ReplayProgress as ReplayProgress
    from recollect.memory.extraction.replay import ReplayReport as ReplayReport
    from recollect.memory.extraction.values import ExtractedEntity as ExtractedEntity
    from recollect.memory.extraction.values import ExtractedFact as ExtractedFact
    from recollect.memory.extraction.values import Extraction as Extraction
    from recollect.memory.extraction.values import Window as Window
    from recollect.memory.pattern_mining import PatternMining as PatternMining
    from recollect.memory.tools import Forget as Forget
    from recollect.memory.tools import RecallByEntity as RecallByEntity
    from recollect.memory.tools import RecallByTopic as RecallByTopic
    from recollect.memory.tools import RecallTimeline as RecallTimeline
    from recollect.memory.tools import Remember as Remember
    from recollect.memory.tools import memory_tools as memory_tools
    from recollect.skills import Skill as Skill
    from recollect.skills import SkillResolver as SkillResolver
    from recollect.skills import load_skills as load_skills
    from recollect.skills import skill as skill
    from recollect.specs import AgentSpec as AgentSpec
    from recollect.specs import load_spec as load_spec
    from recollect.stores.sessions.adapter import PersistenceAdapter as PersistenceAdapter
    from recollect.stores.sessions.memory import InMemoryAdapter as InMemoryAdapter
    from recollect.stores.sessions.mongo import MongoAdapter as MongoAdapter
    from recollect.stores.sessions.opensearch import OpenSearchAdapter as OpenSearchAdapter
    from recollect.stores.sessions.postgres import PostgresAdapter as PostgresAdapter
    from recollect.stores.sessions.redis import RedisAdapter as RedisAdapter
    from recollect.stores.sessions.sqlalchemy import SqlAlchemyAdapter as SqlAlchemyAdapter
    from recollect.stores.sessions.sqlite import SqliteAdapter as SqliteAdapter
    from recollect.tools import Tool as Tool
    from recollect.tools import tool as tool
    from recollect.tools.mcp import McpServer as McpServer
    from recollect.tools.mcp import mcp_tools as mcp_tools
    from recollect.turn import Attachment as Attachment
    from recollect.turn import TurnConfig as TurnConfig
    from recollect.turn import TurnInput as TurnInput
    from recollect.turn import TurnResult as TurnResult
    from recollect.turn import run_chat_turn as run_chat_turn
    from recollect.types import ChatReply as ChatReply
    from recollect.types import ChatUsage as ChatUsage
    from recollect.types import Message as Message
    from recollect.types import MessagePart as MessagePart
    from recollect.types import ReplyDelta as ReplyDelta
    from recollect.types import StreamStop as StreamStop
    from recollect.types import TextDelta as TextDelta
    from recollect.types import ThinkingDelta as ThinkingDelta
    from recollect.types import ToolCall as ToolCall
    from recollect.types import ToolResult as ToolResult
    from recollect.types import ToolUseEnd as ToolUseEnd
    from recollect.types import ToolUseInputDelta as ToolUseInputDelta
    from recollect.types import ToolUseStart as ToolUseStart
    from recollect.types import assistant_message as assistant_message
    from recollect.types import audio_part as audio_part
    from recollect.types import file_part as file_part
    from recollect.types import image_part as image_part
    from recollect.types import message_text as message_text
    from recollect.types import system_message as system_message
    from recollect.types import text_part as text_part
    from recollect.types import tool_result_message as tool_result_message
    from recollect.types import user_message as user_message
    from recollect.types.access import ApiKey as ApiKey
    from recollect.types.access import NewApiKey as NewApiKey
    from recollect.types.bindings import Binding as Binding
    from recollect.types.bindings import ConversationScope as ConversationScope
    from recollect.types.bindings import ExtractionPolicy as ExtractionPolicy
    from recollect.types.blocks import MediaBlock as MediaBlock
    from recollect.types.blocks import TextBlock as TextBlock
    from recollect.types.blocks import ToolResultBlock as ToolResultBlock
    from recollect.types.blocks import ToolUseBlock as ToolUseBlock
    from recollect.types.context import WorkingContext as WorkingContext
    from recollect.types.conversations import AssistantTurn as AssistantTurn
    from recollect.types.conversations import Conversation as Conversation
    from recollect.types.conversations import Event as Event
    from recollect.types.conversations import RollingSummary as RollingSummary
    from recollect.types.conversations import StoredMessage as StoredMessage
    from recollect.types.conversations import TurnOutcome as TurnOutcome
    from recollect.types.jobs import ExtractionRun as ExtractionRun
    from recollect.types.jobs import Job as Job
    from recollect.types.jobs import JobStatus as JobStatus
    from recollect.types.jobs import UsageRecord as UsageRecord
    from recollect.types.jobs import UsageTotal as UsageTotal
    from recollect.types.memory import Atom as Atom
    from recollect.types.memory import AtomStatus as AtomStatus
    from recollect.types.memory import Category as Category
    from recollect.types.memory import CategoryKind as CategoryKind
    from recollect.types.memory import Citation as Citation
    from recollect.types.memory import Entity as Entity
    from recollect.types.memory import EntityType as EntityType
    from recollect.types.memory import MemorySpace as MemorySpace
    from recollect.types.memory import RecallHit as RecallHit
    from recollect.types.memory import RecallMode as RecallMode
    from recollect.types.memory import RecallResult as RecallResult
    from recollect.types.scope import Scope as Scope
    from recollect.types.sessions import MessageData as MessageData
    from recollect.types.sessions import SessionData as SessionData
    from recollect.types.turns import Identity as Identity
    from recollect.types.turns import Session as Session
    from recollect.types.turns import TurnProblem as TurnProblem
    from recollect.user import User as User

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
