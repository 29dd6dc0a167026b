"""Agents on the wire: what they are, requests to them, and their responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from tellback.agent.response import ModelCall, Response, RouteInfo, StateInfo, Trace
from tellback.agent.sessions.serialization import plain_data
from tellback.specs.model import AgentSpec
from tellback.types.memory import WorkingContext
from tellback.wire.agent_sessions import SessionIdIn, SessionStateWire
from tellback.wire.base import IdIn, InputModel, NameIn, WireModel
from tellback.wire.conversations import UsageWire
from tellback.wire.memory import AtomWire, RecallIn
from tellback.wire.messages import ToolCallOut
from tellback.wire.turns import (
    MAX_CYCLES,
    MAX_TOOLS,
    MAX_TURN_WAIT_SECONDS,
    ApprovalIn,
    CallIdIn,
    KeyIn,
    ToolInvocationWire,
    TurnProblemWire,
)

if TYPE_CHECKING:
    from tellback.agent import Agent

MAX_HISTORY_EVENTS = 500
"""How long a history may be."""

AgentKind = Literal["spec", "routes"]


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
    """A way that a conversation with an agent can go."""

    id: str
    title: str = Field(examples=["Book a flight"])
    description: str | None = None


class AgentWire(WireModel):
    """An agent: one by its description, which is invoked, or one with routes, which responds; or both of one name.

    `spec` is the whole description, for those who run an app: a credential of the role 'user' is not shown it.
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
        """It for a description, an agent with routes, or both; with `whole`, as its author wrote it."""
        wire = cls(name=spec.name if spec is not None else agent.name if agent is not None else "")
        if spec is not None:
            wire.kinds.append("spec")
            wire.description = None if spec.description is None else str(spec.description)
            wire.arguments = _encode_arguments(spec)
            wire.tools = [AgentToolWire(name=tool.name, type=tool.type) for tool in spec.tools]
            wire.spec = spec.model_dump(mode="json", by_alias=True, exclude_none=True) if include_spec else None
        if agent is not None:
            wire.kinds.append("routes")
            wire.description = wire.description or agent.description
            wire.goal = agent.goal
            wire.tools += [AgentToolWire(name=tool.name) for tool in agent.tools]
            wire.routes = [AgentRouteWire.of(route) for route in agent.routes]
        return wire

    def value(self) -> AgentSpec | None:
        """The description, if there is one and it was shown."""
        return None if self.spec is None else AgentSpec.model_validate(self.spec)


def _encode_arguments(spec: AgentSpec) -> dict[str, AgentArgumentWire] | None:
    if spec.arguments is None:
        return None
    return {name: AgentArgumentWire.of(each) for name, each in spec.arguments.items()}


class RouteInfoWire(WireModel):
    """The route an answer was given in."""

    value_type: ClassVar[type[Any] | None] = RouteInfo

    id: str
    title: str = Field(examples=["Book a flight"])


class StateInfoWire(WireModel):
    """The state that spoke."""

    value_type: ClassVar[type[Any] | None] = StateInfo

    id: str
    description: str | None = None


class AgentResponseWire(WireModel):
    """An agent's answer. How it came about, prompts and all, is not told."""

    value_type: ClassVar[type[Any] | None] = Response

    message: str = Field(examples=["Where to?"])
    session: SessionStateWire
    tool_calls: list[ToolInvocationWire] = Field(default_factory=list)
    route: RouteInfoWire | None = None
    state: StateInfoWire | None = None
    completed: bool = Field(default=False, description="A route has come to its end.")
    asks: list[str] = Field(default_factory=list, description="The fields that are asked for.")
    pending: list[ToolCallOut] = Field(
        default_factory=list, description="Calls that wait for a decision: post `approvals`."
    )
    conversation_id: str | None = None
    atoms_used: list[AtomWire] = Field(default_factory=list, description="The memories that the model was given.")
    tokens_estimated: int | None = None
    usage: UsageWire
    problems: list[TurnProblemWire] = Field(default_factory=list)

    @classmethod
    def of(cls, value: Response) -> AgentResponseWire:
        """It for an answer."""
        wire = cls.model_validate(value)
        wire.session = SessionStateWire.of(value.session)
        for call in wire.tool_calls:
            call.arguments = plain_data(call.arguments)
        wire.tokens_estimated = None if value.context is None else value.context.tokens_estimated
        return wire

    def value(self) -> Response:
        """The answer, with its usage, and the memories that were used."""
        response: Response = super().value()
        call = ModelCall("reply", None, (), self.message, self.usage.value())
        object.__setattr__(response, "trace", Trace(calls=(call,)))
        if self.tokens_estimated is not None:
            atoms = tuple(atom.value() for atom in self.atoms_used)
            context = WorkingContext("", (), atoms, self.tokens_estimated, remembers=bool(atoms))
            object.__setattr__(response, "context", context)
        return response


class AgentDelta(WireModel):
    """The next piece of an agent's answer: the event `delta` of a stream."""

    delta: str = Field(examples=["Where"])


ApprovalsIn = Annotated[dict[CallIdIn, bool | ApprovalIn], Field(max_length=MAX_TOOLS)]


class _AgentTurnInput(InputModel):
    approvals: ApprovalsIn | None = Field(
        default=None, description="Decisions on calls that wait, in the place of a message."
    )
    metadata: dict[str, Any] | None = Field(default=None, description="Kept with the message.")
    idempotency_key: KeyIn | None = Field(default=None, description="Or the header Idempotency-Key.")
    trace_id: KeyIn | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_TURN_WAIT_SECONDS)] | None = Field(
        default=None, description="Seconds to wait for another turn of the conversation."
    )
    stream: bool = Field(default=False, description="Or the header Accept: text/event-stream.")

    def arguments(self) -> dict[str, Any]:
        """What was given and is not null, but for what the server makes something of."""
        return {name: value for name, value in super().arguments().items() if value is not None and name != "stream"}


class InvokeAgent(_AgentTurnInput):
    """Run one turn of an agent by its description."""

    # Named apart from the method that gives what was given.
    arguments_: dict[str, Any] | None = Field(default=None, examples=[{"userMessage": "Where is my refund?"}])
    conversation_id: IdIn | None = Field(default=None, description="A new one is opened, if not given.")
    model: NameIn | None = Field(default=None, description="The agent's own, or another that the server allows.")
    memory_space_id: IdIn | None = Field(default=None, description="What to remember.")
    recall: RecallIn | None = None
    max_cycles: Annotated[int, Field(ge=1, le=MAX_CYCLES)] | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments of `agents.invoke`, but for the model."""
        arguments = super().arguments()
        arguments["arguments"] = arguments.pop("arguments_", None)
        return {name: value for name, value in arguments.items() if name != "model"}


class RespondTo(_AgentTurnInput):
    """Say something to an agent with routes, or decide what it waits for."""

    message: str | None = Field(default=None, min_length=1, examples=["Two of us to Rome, please."])
    history: list[dict[str, Any]] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_HISTORY_EVENTS,
        description="Events or messages in order, in the place of a message; not for credentials of the role 'user'.",
    )
    session_id: SessionIdIn | None = Field(default=None, description="A new one, if not given.")

    @model_validator(mode="after")
    def _validate_single_input(self) -> RespondTo:
        if sum(each is not None for each in (self.message, self.history, self.approvals)) != 1:
            raise ValueError("pass one of message, history and approvals")
        return self

    @property
    def message_or_history(self) -> str | list[Mapping[str, Any]] | None:
        """What is to be answered."""
        return self.message if self.history is None else list(self.history)

    def arguments(self) -> dict[str, Any]:
        """The keywords of `agent.respond`."""
        excluded = ("message", "history", "session_id")
        return {name: value for name, value in super().arguments().items() if name not in excluded}
