"""JSON models of agents and their sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tellback.agent.events import Event, event_to_dict, parse_event
from tellback.agent.response import ModelCall, Response, RouteInfo, StateInfo, Trace
from tellback.agent.sessions.serialization import parse_metadata_dates, plain_data
from tellback.agent.sessions.session import CurrentRoute, CurrentState, RouteVisit, SessionState
from tellback.specs.model import AgentSpec
from tellback.types.conversations import MessageData, SessionData
from tellback.wire.arguments import RecallIn
from tellback.wire.base import Codec, IdIn, InputModel, KeyMapping, NameIn, WireModel, camel
from tellback.wire.turns import (
    MAX_CYCLES,
    MAX_TURN_WAIT_SECONDS,
    STREAM_DESCRIPTION,
    ApprovalsIn,
    KeyIn,
    ToolInvocationWire,
    TurnProblemWire,
    restore_context,
)
from tellback.wire.values import AtomWire, UsageWire, example_id

if TYPE_CHECKING:
    from tellback.agent import Agent

MAX_SESSION_ID_LENGTH = 150
"""The maximum length of a session id; shared adapters need room for a prefix."""

HIDDEN_KEYS = frozenset(
    (
        *("progress", "paused_routes", "waiting_routes", "completed_routes", "last_route"),
        *("context", "idempotent_reply", "pending_calls", "owner"),
    )
)
"""Keys of the collected data that are not sent: internal state of the agent and inputs of its tools."""

COLLECTED_DATA_KEYS = KeyMapping(
    *("route_history", "current_route_title", "current_route_entered_at"),
    *("current_state_description", "current_state_entered_at"),
)
ROUTE_VISIT_KEYS = KeyMapping("route_id", "entered_at", "exited_at")
SESSION_METADATA_KEYS = KeyMapping("created_at", "last_updated_at", "user_id")
"""Metadata keys that the session sets itself. All other keys belong to the caller."""

KeyRenamer = Callable[[Mapping[str, Any]], dict[str, Any]]

MAX_HISTORY_EVENTS = 500
"""The maximum number of events in a history."""

AgentKind = Literal["spec", "routes"]


def _validate_path_segment(id: str) -> str:
    if id in (".", ".."):
        raise ValueError("a session id must not be . or .., which have another meaning in URLs")
    return id


SessionIdIn = Annotated[
    str,
    Field(min_length=1, max_length=MAX_SESSION_ID_LENGTH, pattern=r"^[^/\x00-\x1f\x7f-\x9f]+$", examples=["web-42"]),
    AfterValidator(_validate_path_segment),
]
"""A session id. It is used in URLs, so slashes and control characters are not allowed."""


def _encode_collected(collected: Mapping[str, Any]) -> dict[str, Any]:
    visible = {name: value for name, value in collected.items() if name not in HIDDEN_KEYS}
    return COLLECTED_DATA_KEYS.to_wire(_rename_nested(visible, ROUTE_VISIT_KEYS.to_wire, SESSION_METADATA_KEYS.to_wire))


def _decode_collected(encoded: Mapping[str, Any]) -> dict[str, Any]:
    """Decode collected data. The keys in `HIDDEN_KEYS` are missing, because they are not sent."""
    return _rename_nested(
        COLLECTED_DATA_KEYS.from_wire(encoded), ROUTE_VISIT_KEYS.from_wire, SESSION_METADATA_KEYS.from_wire
    )


def _rename_nested(collected: Mapping[str, Any], visit: KeyRenamer, metadata: KeyRenamer) -> dict[str, Any]:
    """Rename the keys of the route history and metadata."""
    renamed = dict(collected)
    if isinstance(renamed.get("route_history"), list):
        renamed["route_history"] = [
            visit(each) if isinstance(each, Mapping) else each for each in renamed["route_history"]
        ]
    if isinstance(renamed.get("metadata"), Mapping):
        renamed["metadata"] = metadata(renamed["metadata"])
    return renamed


def _to_plain_data(value: Any) -> Any:
    return plain_data(dict(value)) if isinstance(value, Mapping) else value


PlainData = Annotated[dict[str, Any], BeforeValidator(_to_plain_data)]


class SessionWire(
    WireModel,
    value_type=SessionData,
    examples={"id": "web-42", "agent_name": "Wanda"},
    descriptions={"version": "The number of saved turns."},
):
    """A stored session. Its `ETag` changes with version and status."""

    collected_data: Annotated[dict[str, Any], Codec(_encode_collected, _decode_collected)] = Field(
        default_factory=dict,
        description="The collected fields (`extracted`), the visited routes (`routeHistory`), and your own data.",
    )
    created_at: datetime
    updated_at: datetime


def _encode_tool_calls(calls: Any) -> Any:
    return [{camel(name): value for name, value in call.items()} for call in calls]


def _decode_tool_calls(calls: Any) -> Any:
    names = {"tool_name": "toolName", "arguments": "arguments", "result": "result"}
    return tuple({name: call.get(wire_name) for name, wire_name in names.items()} for call in calls)


class SessionEventWire(
    WireModel,
    value_type=Event,
    examples={"kind": "message", "source": "customer", "creation_utc": "2026-03-01T10:30:00+00:00"},
):
    """An event of a session: a message, tool calls, or a change of status."""

    data: dict[str, Any] = Field(examples=[{"participant": "Alice", "message": "Hello!"}])

    @model_validator(mode="before")
    @classmethod
    def _encode_event(cls, value: Any) -> Any:
        if not isinstance(value, Event):
            return value
        plain = plain_data(event_to_dict(value))
        data = {camel(name): each for name, each in plain["data"].items()}
        if "toolCalls" in data:
            data["toolCalls"] = _encode_tool_calls(data["toolCalls"])
        return {**plain, "data": data}

    def value(self) -> Event:
        return parse_event(dict(self))


class SessionMessageWire(WireModel, value_type=MessageData, examples={"id": example_id("msg")}):
    """A message of a session."""

    tool_calls: Annotated[list[dict[str, Any]], Codec(_encode_tool_calls, _decode_tool_calls)] = Field(
        default_factory=list, examples=[[{"toolName": "search", "arguments": {}, "result": "found"}]]
    )
    event: SessionEventWire | None = None
    created_at: datetime


class CurrentRouteWire(WireModel, value_type=CurrentRoute, examples={"title": "Book a flight"}):
    """The current route of a session."""


class CurrentStateWire(WireModel, value_type=CurrentState):
    """The current state of a session."""

    description: str | None = None


class RouteVisitWire(WireModel, value_type=RouteVisit, descriptions={"exited_at": "Null while the route is active."}):
    """A visit of a route."""


_METADATA = Codec(
    encode=lambda metadata: SESSION_METADATA_KEYS.to_wire(plain_data(dict(metadata))),
    decode=lambda encoded: parse_metadata_dates(SESSION_METADATA_KEYS.from_wire(encoded)),
)


class SessionStateWire(
    WireModel,
    value_type=SessionState,
    hidden=tuple(HIDDEN_KEYS),
    examples={"id": "web-42"},
):
    """The state of a session after a turn."""

    version: int
    extracted: PlainData = Field(default_factory=dict, examples=[{"destination": "Rome"}])
    metadata: Annotated[dict[str, Any], _METADATA] = Field(
        default_factory=dict, examples=[{"createdAt": "2026-03-01T09:00:00+00:00"}]
    )


class CreateSession(InputModel):
    """Options of a new session. Without an id, the server creates one."""

    id: SessionIdIn | None = None
    initial_data: dict[str, Any] | None = Field(default=None, examples=[{"channel": "web"}])


def session_etag(version: int, status: str = "active") -> str:
    """Return the ETag of a session, which contains its version and status.

    >>> session_etag(3), session_etag(3, "completed")
    ('"v3"', '"v3-completed"')
    """
    return f'"v{version}"' if status == "active" else f'"v{version}-{status}"'


class AgentArgumentWire(WireModel):
    """An argument of an invocation."""

    type: str | None = Field(default=None, examples=["string"])
    required: bool = True
    description: str | None = None


class AgentToolWire(WireModel):
    """A tool that an agent may call."""

    name: str = Field(examples=["recall"])
    type: str | None = Field(default=None, examples=["RECALL_BY_TOPIC"])


class AgentRouteWire(WireModel):
    """A route of an agent."""

    id: str
    title: str = Field(examples=["Book a flight"])
    description: str | None = None


class AgentWire(WireModel):
    """An agent: from a spec (use invoke), with routes (use respond), or both under one name.

    `spec` is the complete spec. It is not sent to credentials of the role `user`.
    """

    name: str = Field(examples=["support"])
    kinds: list[AgentKind] = Field(default_factory=list)
    description: str | None = None
    goal: str | None = None
    arguments: dict[str, AgentArgumentWire] | None = None
    tools: list[AgentToolWire] = Field(default_factory=list)
    routes: list[AgentRouteWire] = Field(default_factory=list)
    spec: dict[str, Any] | None = None

    @classmethod
    def describe(cls, spec: AgentSpec | None, agent: Agent | None, *, include_spec: bool) -> AgentWire:
        """Describe an agent from a spec, an agent with routes, or both; `include_spec` adds the complete spec."""
        wire = cls(name=spec.name if spec is not None else agent.name if agent is not None else "")
        if spec is not None:
            wire.kinds.append("spec")
            wire.description = None if spec.description is None else str(spec.description)
            if spec.arguments is not None:
                wire.arguments = {name: AgentArgumentWire.from_value(each) for name, each in spec.arguments.items()}
            wire.tools = [AgentToolWire(name=tool.name, type=tool.type) for tool in spec.tools]
            wire.spec = spec.model_dump(mode="json", by_alias=True, exclude_none=True) if include_spec else None
        if agent is not None:
            wire.kinds.append("routes")
            wire.description = wire.description or agent.description
            wire.goal = agent.goal
            wire.tools += [AgentToolWire(name=tool.name) for tool in agent.tools]
            wire.routes = [AgentRouteWire.from_value(route) for route in agent.routes]
        return wire

    def value(self) -> AgentSpec | None:
        """Return the spec, if it was sent."""
        return None if self.spec is None else AgentSpec.model_validate(self.spec)


class RouteInfoWire(WireModel, value_type=RouteInfo, examples={"title": "Book a flight"}):
    """The route of an answer."""


class StateInfoWire(WireModel, value_type=StateInfo):
    """The state of an answer."""

    description: str | None = None


class AgentResponseWire(
    WireModel,
    value_type=Response,
    hidden=("trace", "context", "turn"),
    examples={"message": "Where to?"},
    descriptions={
        "completed": "Whether a route was completed.",
        "asks": "The fields that the agent asks for.",
        "pending": "Tool calls that wait for a decision: send `approvals`.",
    },
):
    """An agent's answer, without its prompts and traces."""

    tool_calls: list[ToolInvocationWire] = Field(default_factory=list)
    atoms_used: list[AtomWire] = Field(default_factory=list, description="The memories that the model received.")
    tokens_estimated: int | None = None
    usage: UsageWire
    problems: list[TurnProblemWire] = Field(default_factory=list)

    @classmethod
    def from_value(cls, value: Response) -> AgentResponseWire:
        wire = super().from_value(value)
        for call in wire.tool_calls:
            call.arguments = plain_data(call.arguments)
        wire.tokens_estimated = None if value.context is None else value.context.tokens_estimated
        return wire

    def value(self) -> Response:
        """Decode the answer with its usage and memories."""
        response: Response = super().value()
        call = ModelCall("reply", None, (), response.message, self.usage.value())
        context = restore_context(self.atoms_used, self.tokens_estimated)
        return replace(response, trace=Trace(calls=(call,)), context=context)


class AgentDelta(WireModel):
    """The next part of an agent's answer, the event `delta` of a stream."""

    delta: str = Field(examples=["Where"])


class _AgentTurnInput(InputModel):
    drops_null = True

    approvals: ApprovalsIn | None = Field(default=None, description="Decisions on pending calls, instead of a message.")
    metadata: dict[str, Any] | None = Field(default=None, description="Metadata of the message.")
    idempotency_key: KeyIn | None = Field(default=None, description="Alternative to the header Idempotency-Key.")
    trace_id: KeyIn | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_TURN_WAIT_SECONDS)] | None = Field(
        default=None, description="The maximum seconds to wait until another turn of the conversation has ended."
    )
    stream: bool = Field(default=False, exclude=True, description=STREAM_DESCRIPTION)


class InvokeAgent(_AgentTurnInput):
    """Input of a turn of an agent from a spec."""

    # Not named `arguments`, because that is a method.
    arguments_: dict[str, Any] | None = Field(default=None, examples=[{"userMessage": "Where is my refund?"}])
    conversation_id: IdIn | None = Field(default=None, description="The conversation to continue, if any.")
    model: NameIn | None = Field(
        None, exclude=True, description="The agent's model by default, or another that the server allows."
    )
    memory_space_id: IdIn | None = Field(default=None, description="The space to recall from.")
    recall: RecallIn | None = None
    max_cycles: Annotated[int, Field(ge=1, le=MAX_CYCLES)] | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `agents.invoke`, without the model."""
        arguments = super().arguments()
        arguments["arguments"] = arguments.pop("arguments_", None)
        return arguments


class RespondTo(_AgentTurnInput):
    """Input of a turn of an agent with routes: a message, a history or approvals."""

    message: str | None = Field(default=None, exclude=True, min_length=1, examples=["Two of us to Rome, please."])
    history: list[dict[str, Any]] | None = Field(
        default=None,
        exclude=True,
        min_length=1,
        max_length=MAX_HISTORY_EVENTS,
        description="Events or messages in order, instead of a message; not for credentials of the role 'user'.",
    )
    session_id: SessionIdIn | None = Field(default=None, exclude=True, description="The session to continue, if any.")

    @model_validator(mode="after")
    def _validate_single_input(self) -> RespondTo:
        if sum(each is not None for each in (self.message, self.history, self.approvals)) != 1:
            raise ValueError("pass one of message, history and approvals")
        return self

    @property
    def message_or_history(self) -> str | list[Mapping[str, Any]] | None:
        return self.message if self.history is None else list(self.history)
