"""An agent that holds a goal-directed conversation: routes, states, data to gather.

A turn is understand → move → reply: one structured call reads the message, code walks on along the route, and one plain
call answers. `move` is pure, so that flows can be tested without a model.
"""

from tellback.agent.agent import Agent as Agent
from tellback.agent.definitions.canned_responses import CannedResponse as CannedResponse
from tellback.agent.definitions.gather_schema import GatherSchema as GatherSchema
from tellback.agent.definitions.guidelines import Capability as Capability
from tellback.agent.definitions.guidelines import CompositionMode as CompositionMode
from tellback.agent.definitions.guidelines import Guideline as Guideline
from tellback.agent.definitions.guidelines import GuidelineMatch as GuidelineMatch
from tellback.agent.definitions.guidelines import Term as Term
from tellback.agent.definitions.route import Route as Route
from tellback.agent.definitions.route import RouteRef as RouteRef
from tellback.agent.definitions.state import END_ROUTE as END_ROUTE
from tellback.agent.definitions.state import State as State
from tellback.agent.definitions.state import StateRef as StateRef
from tellback.agent.definitions.state import Transition as Transition
from tellback.agent.definitions.state import generate_route_id as generate_route_id
from tellback.agent.definitions.state import generate_state_id as generate_state_id
from tellback.agent.definitions.state import generate_tool_id as generate_tool_id
from tellback.agent.definitions.tools import DomainRegistry as DomainRegistry
from tellback.agent.definitions.tools import define_tool as define_tool
from tellback.agent.events import Event as Event
from tellback.agent.events import EventKind as EventKind
from tellback.agent.events import EventSource as EventSource
from tellback.agent.events import MessageEventData as MessageEventData
from tellback.agent.events import StatusEventData as StatusEventData
from tellback.agent.events import ToolEventData as ToolEventData
from tellback.agent.events import adapt_event as adapt_event
from tellback.agent.events import create_message_event as create_message_event
from tellback.agent.events import create_status_event as create_status_event
from tellback.agent.events import create_tool_event as create_tool_event
from tellback.agent.flow.move import Interpretation as Interpretation
from tellback.agent.flow.move import MoveResult as MoveResult
from tellback.agent.flow.move import RejectedValue as RejectedValue
from tellback.agent.flow.move import move as move
from tellback.agent.flow.route_choice import Thresholds as Thresholds
from tellback.agent.prompts.builder import BuiltInSection as BuiltInSection
from tellback.agent.prompts.builder import PromptBuilder as PromptBuilder
from tellback.agent.prompts.understand import Limits as Limits
from tellback.agent.response import AgentStructuredResponse as AgentStructuredResponse
from tellback.agent.response import BeforeResponse as BeforeResponse
from tellback.agent.response import ModelCall as ModelCall
from tellback.agent.response import Response as Response
from tellback.agent.response import RouteInfo as RouteInfo
from tellback.agent.response import StateInfo as StateInfo
from tellback.agent.response import StreamChunk as StreamChunk
from tellback.agent.response import Trace as Trace
from tellback.agent.runtime.turn import MemoryOptions as MemoryOptions
from tellback.agent.sessions.persistence import InMemorySessions as InMemorySessions
from tellback.agent.sessions.persistence import NewMessage as NewMessage
from tellback.agent.sessions.persistence import NewSession as NewSession
from tellback.agent.sessions.persistence import Persistence as Persistence
from tellback.agent.sessions.persistence import SessionStore as SessionStore
from tellback.agent.sessions.persistence import SessionWithState as SessionWithState
from tellback.agent.sessions.serialization import session_data_to_state as session_data_to_state
from tellback.agent.sessions.serialization import session_state_to_data as session_state_to_data
from tellback.agent.sessions.session import SessionState as SessionState
from tellback.agent.sessions.session import create_session as create_session
from tellback.agent.sessions.session import enter_route as enter_route
from tellback.agent.sessions.session import enter_state as enter_state
from tellback.agent.sessions.session import merge_extracted as merge_extracted
from tellback.tools.context import ToolContext as ToolContext
from tellback.tools.context import ToolUpdate as ToolUpdate
