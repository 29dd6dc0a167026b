"""Agents' sessions on the wire: where they stand, what was gathered, and what was said."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from recollect.agent.event_values import Event, EventKind, EventSource, event_of_mapping, plain_event
from recollect.agent.session import CurrentRoute, CurrentState, RouteVisit, SessionState
from recollect.agent.session_data import plain_data
from recollect.types.sessions import MessageData, MessageRole, SessionData, SessionStatus
from recollect.wire.base import Input, Wire, camel

ID_LENGTH = 150
"""How long a session's id may be; adapters that several apps share need room for more."""


def _in_a_path(id: str) -> str:
    if id in (".", ".."):
        raise ValueError("a session's id is not . or .., which mean something else in an address")
    return id


SessionIdIn = Annotated[
    str,
    Field(min_length=1, max_length=ID_LENGTH, pattern=r"^[^/\x00-\x1f\x7f-\x9f]+$", examples=["web-42"]),
    AfterValidator(_in_a_path),
]
"""A session's id: it stands in addresses, so it holds no slash and no control characters."""

HIDDEN = frozenset(("progress", "left", "context", "answered", "waiting", "owner"))
"""What of the collected data is between the agent and its author: how it got there, and what its tools were given."""


def _shown(data: Any) -> Any:
    return {name: value for name, value in data.items() if name not in HIDDEN} if isinstance(data, Mapping) else data


def _plain(value: Any) -> Any:
    return plain_data(dict(value)) if isinstance(value, Mapping) else value


Data = Annotated[dict[str, Any], BeforeValidator(_plain)]


class SessionWire(Wire):
    """A session as it is stored. Its `ETag` changes with its version and its status."""

    kind: ClassVar[type[Any] | None] = SessionData

    id: str = Field(examples=["web-42"])
    user_id: str | None = None
    agent_name: str | None = Field(default=None, examples=["Wanda"])
    status: SessionStatus = "active"
    current_route: str | None = None
    current_state: str | None = None
    collected_data: Annotated[dict[str, Any], BeforeValidator(_shown)] = Field(
        default_factory=dict, description="`extracted` is what was gathered; your own data are beside it."
    )
    message_count: int = 0
    last_message_at: datetime | None = None
    completed_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    version: int = Field(default=0, description="How many turns were saved.")


def _camel_calls(calls: Any) -> Any:
    return [{camel(name): value for name, value in call.items()} for call in calls]


class EventWire(Wire):
    """Something that happened in a session: what was said, which tools ran, or a change of status."""

    kind_: EventKind = Field(examples=["message"])
    source: EventSource = Field(examples=["customer"])
    data: dict[str, Any] = Field(examples=[{"participant": "Alice", "message": "Hello!"}])
    creation_utc: str = Field(examples=["2026-03-01T10:30:00+00:00"])

    @classmethod
    def of(cls, value: Event) -> EventWire:
        """It for an event."""
        plain = plain_data(plain_event(value))
        data = {camel(name): each for name, each in plain.pop("data").items()}
        if "toolCalls" in data:
            data["toolCalls"] = _camel_calls(data["toolCalls"])
        return cls(kind_=plain.pop("kind"), **plain, data=data)

    def value(self) -> Event:
        """The event."""
        given = {"kind": self.kind_, "source": self.source, "data": self.data, "creation_utc": self.creation_utc}
        return event_of_mapping(given)


class SessionMessageWire(Wire):
    """A message of a session."""

    kind: ClassVar[type[Any] | None] = MessageData

    id: str = Field(examples=["msg_018f3c0de0a17b2c4d5e6f708192"])
    session_id: str
    role: MessageRole
    content: str
    user_id: str | None = None
    route: str | None = None
    state: str | None = None
    tool_calls: list[dict[str, Any]] = Field(
        default_factory=list, examples=[[{"toolName": "search", "arguments": {}, "result": "found"}]]
    )
    event: EventWire | None = None
    created_at: datetime
    position: int = 0

    @classmethod
    def of(cls, value: MessageData) -> SessionMessageWire:
        """It for a message, whose event is a value."""
        names = ("id", "session_id", "role", "content", "user_id", "route", "state", "created_at", "position")
        event = None if value.event is None else EventWire.of(value.event)
        calls = _camel_calls(value.tool_calls)
        return cls(**{name: getattr(value, name) for name in names}, tool_calls=calls, event=event)

    def value(self) -> MessageData:
        """The message."""
        found: MessageData = super().value()
        calls = [
            {"tool_name": each.get("toolName"), "arguments": each.get("arguments"), "result": each.get("result")}
            for each in self.tool_calls
        ]
        object.__setattr__(found, "tool_calls", tuple(calls))
        return found


class CurrentRouteWire(Wire):
    """The route a session is in."""

    kind: ClassVar[type[Any] | None] = CurrentRoute

    id: str
    title: str = Field(examples=["Book a flight"])
    entered_at: datetime


class CurrentStateWire(Wire):
    """The state that spoke last."""

    kind: ClassVar[type[Any] | None] = CurrentState

    id: str
    description: str | None = None
    entered_at: datetime


class RouteVisitWire(Wire):
    """One visit of a route."""

    kind: ClassVar[type[Any] | None] = RouteVisit

    route_id: str
    entered_at: datetime
    exited_at: datetime | None = Field(default=None, description="Null while it lasts.")
    completed: bool = False


class SessionStateWire(Wire):
    """Where a session stands after a turn."""

    kind: ClassVar[type[Any] | None] = SessionState

    id: str = Field(examples=["web-42"])
    version: int
    current_route: CurrentRouteWire | None = None
    current_state: CurrentStateWire | None = None
    extracted: Data = Field(default_factory=dict, examples=[{"destination": "Rome"}])
    route_history: list[RouteVisitWire] = Field(default_factory=list)
    metadata: Data = Field(default_factory=dict)


class CreateSession(Input):
    """Begin a session. Without an id it gets a new one."""

    id: SessionIdIn | None = None
    initial_data: dict[str, Any] | None = Field(default=None, examples=[{"channel": "web"}])


class UpdateSession(Input):
    """Change a session's status."""

    status: SessionStatus


def session_tag(version: int, status: str = "active") -> str:
    """The ETag of a session: turns change its version, and it has a status beside.

    >>> session_tag(3), session_tag(3, "completed")
    ('"v3"', '"v3-completed"')
    """
    return f'"v{version}"' if status == "active" else f'"v{version}-{status}"'
