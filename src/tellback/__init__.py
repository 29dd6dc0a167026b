"""Tellback: conversational agents that remember.

Names are loaded when first used, so `import tellback` costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 11):  # noqa: UP036 - from a checkout; only an installer would refuse it
    raise ImportError(f"Tellback needs Python 3.11 or later, and this is {sys.version.split()[0]}.")

__version__ = "0.1.0"

_EXPORTS = {
    "tellback.admin": "ErasureReport ExportReport",
    "tellback.agent": """
        adapt_event Agent AgentStructuredResponse BuiltInSection CannedResponse Capability CompositionMode
        create_message_event create_session create_tool_event define_tool DomainRegistry END_ROUTE enter_route
        enter_state EventKind EventSource generate_route_id generate_state_id generate_tool_id Guideline
        InMemorySessions Limits MemoryOptions merge_extracted Persistence PromptBuilder Response Route
        session_data_to_state session_state_to_data SessionState SessionStore State StreamChunk Term Thresholds
        ToolContext ToolUpdate
    """,
    "tellback.app": "Tellback",
    "tellback.chat": """
        AnthropicModel Approval ChatOptions ChatRequest CompatibleModel GeminiModel LocalModel LoopResult make_usage
        Model OfflineModel OllamaModel open_model OpenAIModel OpenRouterModel ProviderRegistration run_loop
        run_loop_messages run_loop_stream run_loop_stream_messages stream_loop with_providers XaiModel
    """,
    "tellback.client": "TellbackClient",
    "tellback.embed": "Embedder FunctionEmbedder OnnxEmbedder resolve_embedder StaticEmbedder",
    "tellback.errors": """
        AccessError AgentSpecError AlreadyAnsweredError AlreadyDecidedError AtomSupersededError BudgetExceededError
        CannedResponseError ChatError ConfigurationError ConversationClosedError EmbeddingError ExtractionError
        FlowError IdempotencyConflictError InvalidArgumentError JobLostError MaxIterationsError McpError
        MissingExtraError MissingKeyError NotAllowedError NotAuthenticatedError NotFoundError OutputValidationError
        PreconditionFailedError ProviderAuthError ProviderConnectionError ProviderError ProviderOverloadedError
        ProviderRateLimitError ProviderRequestError ProviderResponseError ProviderTimeoutError RateLimitedError
        RemoteError RemoteUnavailableError RequestError RequestInProgressError RequestTooLargeError
        SchemaVersionError SessionConflictError SkillError StoreBusyError StoreClosedError StoreCorruptError
        StoreError StoreFullError StoreReadOnlyError StoreUnavailableError TellbackError ToolError ToolSchemaError
        TurnConflictError UnknownModelError
    """,
    "tellback.jobs": "WorkerOptions",
    "tellback.memory.extraction.extractors": "LlmExtractor",
    "tellback.memory.extraction.service": "ReplayProgress ReplayReport",
    "tellback.memory.extraction.values": "ExtractedEntity ExtractedFact Extraction Window",
    "tellback.memory.patterns": "PatternMining",
    "tellback.memory.tools": "Forget memory_tools RecallByEntity RecallByTopic RecallTimeline Remember",
    "tellback.sessions.adapter": "PersistenceAdapter",
    "tellback.sessions.in_memory": "InMemoryAdapter",
    "tellback.sessions.mongo": "MongoAdapter",
    "tellback.sessions.opensearch": "OpenSearchAdapter",
    "tellback.sessions.redis": "RedisAdapter",
    "tellback.sessions.sql.postgres": "PostgresAdapter",
    "tellback.sessions.sql.sqlite": "SqliteAdapter",
    "tellback.sessions.sqlalchemy": "SqlAlchemyAdapter",
    "tellback.skills": "load_skills Skill skill SkillResolver",
    "tellback.specs": "AgentSpec load_spec",
    "tellback.tools": "Tool tool",
    "tellback.tools.mcp": "mcp_tools McpServer",
    "tellback.turn": "Attachment run_chat_turn TurnConfig TurnInput TurnResult",
    "tellback.types": """
        assistant_message audio_part ChatReply ChatUsage file_part image_part Message message_text MessagePart
        ReplyDelta StreamStop system_message text_part TextDelta ThinkingDelta tool_result_message ToolCall
        ToolResult ToolUseEnd ToolUseInputDelta ToolUseStart user_message
    """,
    "tellback.types.access": "ApiKey NewApiKey Scope",
    "tellback.types.blocks": "MediaBlock TextBlock ToolResultBlock ToolUseBlock",
    "tellback.types.conversations": """
        AssistantTurn Conversation Event Identity MessageData RollingSummary Session SessionData StoredMessage
        TurnOutcome TurnProblem
    """,
    "tellback.types.jobs": """
        Binding ConversationScope ExtractionPolicy ExtractionRun Job JobStatus UsageRecord UsageTotal
    """,
    "tellback.types.memory": """
        Atom AtomStatus Category CategoryKind Citation Entity EntityType MemorySpace RecallHit RecallMode
        RecallResult WorkingContext
    """,
    "tellback.user": "User",
}
_MODULE_BY_NAME = {name: module for module, names in _EXPORTS.items() for name in names.split()}

if TYPE_CHECKING:
    from tellback.admin import ErasureReport as ErasureReport
    from tellback.admin import ExportReport as ExportReport
    from tellback.agent import END_ROUTE as END_ROUTE
    from tellback.agent import Agent as Agent
    from tellback.agent import AgentStructuredResponse as AgentStructuredResponse
    from tellback.agent import BuiltInSection as BuiltInSection
    from tellback.agent import CannedResponse as CannedResponse
    from tellback.agent import Capability as Capability
    from tellback.agent import CompositionMode as CompositionMode
    from tellback.agent import DomainRegistry as DomainRegistry
    from tellback.agent import EventKind as EventKind
    from tellback.agent import EventSource as EventSource
    from tellback.agent import Guideline as Guideline
    from tellback.agent import InMemorySessions as InMemorySessions
    from tellback.agent import Limits as Limits
    from tellback.agent import MemoryOptions as MemoryOptions
    from tellback.agent import Persistence as Persistence
    from tellback.agent import PromptBuilder as PromptBuilder
    from tellback.agent import Response as Response
    from tellback.agent import Route as Route
    from tellback.agent import SessionState as SessionState
    from tellback.agent import SessionStore as SessionStore
    from tellback.agent import State as State
    from tellback.agent import StreamChunk as StreamChunk
    from tellback.agent import Term as Term
    from tellback.agent import Thresholds as Thresholds
    from tellback.agent import ToolContext as ToolContext
    from tellback.agent import ToolUpdate as ToolUpdate
    from tellback.agent import adapt_event as adapt_event
    from tellback.agent import create_message_event as create_message_event
    from tellback.agent import create_session as create_session
    from tellback.agent import create_tool_event as create_tool_event
    from tellback.agent import define_tool as define_tool
    from tellback.agent import enter_route as enter_route
    from tellback.agent import enter_state as enter_state
    from tellback.agent import generate_route_id as generate_route_id
    from tellback.agent import generate_state_id as generate_state_id
    from tellback.agent import generate_tool_id as generate_tool_id
    from tellback.agent import merge_extracted as merge_extracted
    from tellback.agent import session_data_to_state as session_data_to_state
    from tellback.agent import session_state_to_data as session_state_to_data
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
    from tellback.chat import OfflineModel as OfflineModel
    from tellback.chat import OllamaModel as OllamaModel
    from tellback.chat import OpenAIModel as OpenAIModel
    from tellback.chat import OpenRouterModel as OpenRouterModel
    from tellback.chat import ProviderRegistration as ProviderRegistration
    from tellback.chat import XaiModel as XaiModel
    from tellback.chat import make_usage as make_usage
    from tellback.chat import open_model as open_model
    from tellback.chat import run_loop as run_loop
    from tellback.chat import run_loop_messages as run_loop_messages
    from tellback.chat import run_loop_stream as run_loop_stream
    from tellback.chat import run_loop_stream_messages as run_loop_stream_messages
    from tellback.chat import stream_loop as stream_loop
    from tellback.chat import with_providers as with_providers
    from tellback.client import TellbackClient as TellbackClient
    from tellback.embed import Embedder as Embedder
    from tellback.embed import FunctionEmbedder as FunctionEmbedder
    from tellback.embed import OnnxEmbedder as OnnxEmbedder
    from tellback.embed import StaticEmbedder as StaticEmbedder
    from tellback.embed import resolve_embedder as resolve_embedder
    from tellback.errors import AccessError as AccessError
    from tellback.errors import AgentSpecError as AgentSpecError
    from tellback.errors import AlreadyAnsweredError as AlreadyAnsweredError
    from tellback.errors import AlreadyDecidedError as AlreadyDecidedError
    from tellback.errors import AtomSupersededError as AtomSupersededError
    from tellback.errors import BudgetExceededError as BudgetExceededError
    from tellback.errors import CannedResponseError as CannedResponseError
    from tellback.errors import ChatError as ChatError
    from tellback.errors import ConfigurationError as ConfigurationError
    from tellback.errors import ConversationClosedError as ConversationClosedError
    from tellback.errors import EmbeddingError as EmbeddingError
    from tellback.errors import ExtractionError as ExtractionError
    from tellback.errors import FlowError as FlowError
    from tellback.errors import IdempotencyConflictError as IdempotencyConflictError
    from tellback.errors import InvalidArgumentError as InvalidArgumentError
    from tellback.errors import JobLostError as JobLostError
    from tellback.errors import MaxIterationsError as MaxIterationsError
    from tellback.errors import McpError as McpError
    from tellback.errors import MissingExtraError as MissingExtraError
    from tellback.errors import MissingKeyError as MissingKeyError
    from tellback.errors import NotAllowedError as NotAllowedError
    from tellback.errors import NotAuthenticatedError as NotAuthenticatedError
    from tellback.errors import NotFoundError as NotFoundError
    from tellback.errors import OutputValidationError as OutputValidationError
    from tellback.errors import PreconditionFailedError as PreconditionFailedError
    from tellback.errors import ProviderAuthError as ProviderAuthError
    from tellback.errors import ProviderConnectionError as ProviderConnectionError
    from tellback.errors import ProviderError as ProviderError
    from tellback.errors import ProviderOverloadedError as ProviderOverloadedError
    from tellback.errors import ProviderRateLimitError as ProviderRateLimitError
    from tellback.errors import ProviderRequestError as ProviderRequestError
    from tellback.errors import ProviderResponseError as ProviderResponseError
    from tellback.errors import ProviderTimeoutError as ProviderTimeoutError
    from tellback.errors import RateLimitedError as RateLimitedError
    from tellback.errors import RemoteError as RemoteError
    from tellback.errors import RemoteUnavailableError as RemoteUnavailableError
    from tellback.errors import RequestError as RequestError
    from tellback.errors import RequestInProgressError as RequestInProgressError
    from tellback.errors import RequestTooLargeError as RequestTooLargeError
    from tellback.errors import SchemaVersionError as SchemaVersionError
    from tellback.errors import SessionConflictError as SessionConflictError
    from tellback.errors import SkillError as SkillError
    from tellback.errors import StoreBusyError as StoreBusyError
    from tellback.errors import StoreClosedError as StoreClosedError
    from tellback.errors import StoreCorruptError as StoreCorruptError
    from tellback.errors import StoreError as StoreError
    from tellback.errors import StoreFullError as StoreFullError
    from tellback.errors import StoreReadOnlyError as StoreReadOnlyError
    from tellback.errors import StoreUnavailableError as StoreUnavailableError
    from tellback.errors import TellbackError as TellbackError
    from tellback.errors import ToolError as ToolError
    from tellback.errors import ToolSchemaError as ToolSchemaError
    from tellback.errors import TurnConflictError as TurnConflictError
    from tellback.errors import UnknownModelError as UnknownModelError
    from tellback.jobs import WorkerOptions as WorkerOptions
    from tellback.memory.extraction.extractors import LlmExtractor as LlmExtractor
    from tellback.memory.extraction.service import ReplayProgress as ReplayProgress
    from tellback.memory.extraction.service import ReplayReport as ReplayReport
    from tellback.memory.extraction.values import ExtractedEntity as ExtractedEntity
    from tellback.memory.extraction.values import ExtractedFact as ExtractedFact
    from tellback.memory.extraction.values import Extraction as Extraction
    from tellback.memory.extraction.values import Window as Window
    from tellback.memory.patterns import PatternMining as PatternMining
    from tellback.memory.tools import Forget as Forget
    from tellback.memory.tools import RecallByEntity as RecallByEntity
    from tellback.memory.tools import RecallByTopic as RecallByTopic
    from tellback.memory.tools import RecallTimeline as RecallTimeline
    from tellback.memory.tools import Remember as Remember
    from tellback.memory.tools import memory_tools as memory_tools
    from tellback.sessions.adapter import PersistenceAdapter as PersistenceAdapter
    from tellback.sessions.in_memory import InMemoryAdapter as InMemoryAdapter
    from tellback.sessions.mongo import MongoAdapter as MongoAdapter
    from tellback.sessions.opensearch import OpenSearchAdapter as OpenSearchAdapter
    from tellback.sessions.redis import RedisAdapter as RedisAdapter
    from tellback.sessions.sql.postgres import PostgresAdapter as PostgresAdapter
    from tellback.sessions.sql.sqlite import SqliteAdapter as SqliteAdapter
    from tellback.sessions.sqlalchemy import SqlAlchemyAdapter as SqlAlchemyAdapter
    from tellback.skills import Skill as Skill
    from tellback.skills import SkillResolver as SkillResolver
    from tellback.skills import load_skills as load_skills
    from tellback.skills import skill as skill
    from tellback.specs import AgentSpec as AgentSpec
    from tellback.specs import load_spec as load_spec
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
    from tellback.types import ThinkingDelta as ThinkingDelta
    from tellback.types import ToolCall as ToolCall
    from tellback.types import ToolResult as ToolResult
    from tellback.types import ToolUseEnd as ToolUseEnd
    from tellback.types import ToolUseInputDelta as ToolUseInputDelta
    from tellback.types import ToolUseStart as ToolUseStart
    from tellback.types import assistant_message as assistant_message
    from tellback.types import audio_part as audio_part
    from tellback.types import file_part as file_part
    from tellback.types import image_part as image_part
    from tellback.types import message_text as message_text
    from tellback.types import system_message as system_message
    from tellback.types import text_part as text_part
    from tellback.types import tool_result_message as tool_result_message
    from tellback.types import user_message as user_message
    from tellback.types.access import ApiKey as ApiKey
    from tellback.types.access import NewApiKey as NewApiKey
    from tellback.types.access import Scope as Scope
    from tellback.types.blocks import MediaBlock as MediaBlock
    from tellback.types.blocks import TextBlock as TextBlock
    from tellback.types.blocks import ToolResultBlock as ToolResultBlock
    from tellback.types.blocks import ToolUseBlock as ToolUseBlock
    from tellback.types.conversations import AssistantTurn as AssistantTurn
    from tellback.types.conversations import Conversation as Conversation
    from tellback.types.conversations import Event as Event
    from tellback.types.conversations import Identity as Identity
    from tellback.types.conversations import MessageData as MessageData
    from tellback.types.conversations import RollingSummary as RollingSummary
    from tellback.types.conversations import Session as Session
    from tellback.types.conversations import SessionData as SessionData
    from tellback.types.conversations import StoredMessage as StoredMessage
    from tellback.types.conversations import TurnOutcome as TurnOutcome
    from tellback.types.conversations import TurnProblem as TurnProblem
    from tellback.types.jobs import Binding as Binding
    from tellback.types.jobs import ConversationScope as ConversationScope
    from tellback.types.jobs import ExtractionPolicy as ExtractionPolicy
    from tellback.types.jobs import ExtractionRun as ExtractionRun
    from tellback.types.jobs import Job as Job
    from tellback.types.jobs import JobStatus as JobStatus
    from tellback.types.jobs import UsageRecord as UsageRecord
    from tellback.types.jobs import UsageTotal as UsageTotal
    from tellback.types.memory import Atom as Atom
    from tellback.types.memory import AtomStatus as AtomStatus
    from tellback.types.memory import Category as Category
    from tellback.types.memory import CategoryKind as CategoryKind
    from tellback.types.memory import Citation as Citation
    from tellback.types.memory import Entity as Entity
    from tellback.types.memory import EntityType as EntityType
    from tellback.types.memory import MemorySpace as MemorySpace
    from tellback.types.memory import RecallHit as RecallHit
    from tellback.types.memory import RecallMode as RecallMode
    from tellback.types.memory import RecallResult as RecallResult
    from tellback.types.memory import WorkingContext as WorkingContext
    from tellback.user import User as User

__all__ = ["__version__", *sorted(_MODULE_BY_NAME)]


def __getattr__(name: str) -> Any:
    module = _MODULE_BY_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_BY_NAME})
