"""An agent that leads a goal-directed conversation: routes, states, data to gather.

A turn is understand → move → reply: one structured model call interprets the message, code walks the route, and one
plain call replies. `move` is pure, so flows can be tested without a model.
"""

from tellback.agent.agent import Agent
from tellback.agent.definitions.canned_responses import CannedResponse
from tellback.agent.definitions.gather_schema import GatherSchema
from tellback.agent.definitions.guidelines import Capability, CompositionMode, Guideline, GuidelineMatch, Term
from tellback.agent.definitions.route import Route, RouteRef
from tellback.agent.definitions.state import (
    END_ROUTE,
    State,
    StateRef,
    Transition,
    generate_route_id,
    generate_state_id,
    generate_tool_id,
)
from tellback.agent.definitions.tools import DomainRegistry, define_tool
from tellback.agent.events import (
    Event,
    EventKind,
    EventSource,
    MessageEventData,
    StatusEventData,
    ToolEventData,
    adapt_event,
    create_message_event,
    create_status_event,
    create_tool_event,
)
from tellback.agent.flow.move import Interpretation, MoveResult, RejectedValue, move
from tellback.agent.flow.route_choice import Thresholds
from tellback.agent.prompts.builder import BuiltInSection, PromptBuilder
from tellback.agent.prompts.understand import Limits
from tellback.agent.response import (
    AgentStructuredResponse,
    BeforeResponse,
    ModelCall,
    Response,
    RouteInfo,
    StateInfo,
    StreamChunk,
    Trace,
)
from tellback.agent.runtime.turn import MemoryOptions
from tellback.agent.sessions.persistence import (
    InMemorySessions,
    NewMessage,
    NewSession,
    Persistence,
    SessionStore,
    SessionWithState,
)
from tellback.agent.sessions.serialization import session_data_to_state, session_state_to_data
from tellback.agent.sessions.session import (
    CurrentRoute,
    CurrentState,
    IdempotentReply,
    PausedRoute,
    PendingCall,
    RouteProgress,
    RouteVisit,
    SessionState,
    ToolRun,
    create_session,
    enter_route,
    enter_state,
    merge_extracted,
)
from tellback.tools.context import ToolContext, ToolUpdate

__all__ = [
    "END_ROUTE",
    "Agent",
    "AgentStructuredResponse",
    "BeforeResponse",
    "BuiltInSection",
    "CannedResponse",
    "Capability",
    "CompositionMode",
    "CurrentRoute",
    "CurrentState",
    "DomainRegistry",
    "Event",
    "EventKind",
    "EventSource",
    "GatherSchema",
    "Guideline",
    "GuidelineMatch",
    "IdempotentReply",
    "InMemorySessions",
    "Interpretation",
    "Limits",
    "MemoryOptions",
    "MessageEventData",
    "ModelCall",
    "MoveResult",
    "NewMessage",
    "NewSession",
    "PausedRoute",
    "PendingCall",
    "Persistence",
    "PromptBuilder",
    "RejectedValue",
    "Response",
    "Route",
    "RouteInfo",
    "RouteProgress",
    "RouteRef",
    "RouteVisit",
    "SessionState",
    "SessionStore",
    "SessionWithState",
    "State",
    "StateInfo",
    "StateRef",
    "StatusEventData",
    "StreamChunk",
    "Term",
    "Thresholds",
    "ToolContext",
    "ToolEventData",
    "ToolRun",
    "ToolUpdate",
    "Trace",
    "Transition",
    "adapt_event",
    "create_message_event",
    "create_session",
    "create_status_event",
    "create_tool_event",
    "define_tool",
    "enter_route",
    "enter_state",
    "generate_route_id",
    "generate_state_id",
    "generate_tool_id",
    "merge_extracted",
    "move",
    "session_data_to_state",
    "session_state_to_data",
]
