"""An agent that holds a goal-directed conversation: routes, states, data to gather.

A turn is understand → move → reply: one structured call reads the message, code walks on along the route, and one plain
call answers. `move` is pure, so that flows can be tested without a model.
"""

from tellback.agent.agent import Agent
from tellback.agent.canned import CannedResponse
from tellback.agent.choosing import Thresholds
from tellback.agent.domains import DomainRegistry
from tellback.agent.event_values import MessageEventData, StatusEventData, ToolEventData
from tellback.agent.events import (
    Event,
    EventKind,
    EventSource,
    adapt_event,
    create_message_event,
    create_status_event,
    create_tool_event,
)
from tellback.agent.gathering import GatherSchema
from tellback.agent.hooks import BeforeResponse
from tellback.agent.ids import generate_route_id, generate_state_id, generate_tool_id
from tellback.agent.memory import MemoryOptions
from tellback.agent.move import Interpretation, MoveResult, RejectedValue, move
from tellback.agent.persistence import NewMessage, NewSession, Persistence, SessionWithState
from tellback.agent.prompts import BuiltInSection, PromptBuilder
from tellback.agent.response import (
    AgentStructuredResponse,
    ModelCall,
    Response,
    RouteInfo,
    StateInfo,
    StreamChunk,
    Trace,
)
from tellback.agent.route import Route, RouteRef
from tellback.agent.session import SessionState, create_session, enter_route, enter_state, merge_extracted
from tellback.agent.session_data import session_data_to_state, session_state_to_data
from tellback.agent.sessions import InMemorySessions, SessionStore
from tellback.agent.state import END_ROUTE, State, StateRef, Transition
from tellback.agent.tooling import define_tool
from tellback.agent.understand import Limits
from tellback.agent.values import Capability, CompositionMode, Guideline, GuidelineMatch, Term
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
    "DomainRegistry",
    "Event",
    "EventKind",
    "EventSource",
    "GatherSchema",
    "Guideline",
    "GuidelineMatch",
    "InMemorySessions",
    "Interpretation",
    "Limits",
    "MemoryOptions",
    "MessageEventData",
    "ModelCall",
    "MoveResult",
    "NewMessage",
    "NewSession",
    "Persistence",
    "PromptBuilder",
    "RejectedValue",
    "Response",
    "Route",
    "RouteInfo",
    "RouteRef",
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
