"""The values of a move: the tools to run, their results, the steps, and the result. Pure code."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.flow.interpretation import RejectedValue
from tellback.agent.flow.route_choice import NO_ROUTE_CHOICE, RouteChoice
from tellback.agent.sessions.session import PendingCall, SessionState, ToolRun


@dataclass(frozen=True, slots=True)
class ToolRunRequest:
    """A tool to run, with its arguments from the gathered data."""

    state: State
    arguments: Mapping[str, Any]
    session: SessionState


@dataclass(frozen=True, slots=True)
class ToolRunResult:
    """The result of a state's tool. `value` is the return value; `data` and `context` are merged, and None removes a
    field. With `pending` the tool has not run: it needs a person's approval."""

    run: ToolRun
    value: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    pending: PendingCall | None = None


@dataclass(frozen=True, slots=True)
class WalkStep:
    """One step of a walk: the action at a state ("skipped", "ran", "kept", "failed", "waits", "held", "repeats",
    "speaks" or "ended"), and the reason."""

    state_id: str
    state: str
    action: str
    why: str


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The result of a move. `state` of `route` speaks next; with `ended` the route was completed and no state speaks.

    `missing` are fields that the state still needs. `completed` are the routes that ended in this turn, and `queued`
    those that wait until the current one ends; the user no longer wants the `dropped` ones. `went_back` is the reason
    why a state before the last one speaks. `rejected` and `ignored` are what was not applied: values, and contradictory
    parts of the interpretation.

    >>> from datetime import UTC, datetime
    >>> from tellback.agent import Route, create_session
    >>> from tellback.agent.flow.move import Interpretation, move
    >>> schema = {"type": "object", "properties": {"to": {"type": "string"}, "day": {"type": "string"}}}
    >>> route = Route("Book a flight", gather_schema=schema)
    >>> ask = route.initial_state.transition_to(chat_state="Ask where to and when", gather=["to", "day"])
    >>> understood = Interpretation(data={route.id: {"to": "Rome"}})
    >>> try:
    ...     next(move({route.id: route}, create_session(), understood, datetime.now(UTC)))
    ... except StopIteration as end:
    ...     result = end.value
    >>> result.state.title, result.missing, result.session.extracted
    ('Ask where to and when', ('day',), {'to': 'Rome'})
    """

    session: SessionState
    route: Route | None = None
    state: State | None = None
    ended: bool = False
    choice: RouteChoice = NO_ROUTE_CHOICE
    walked: tuple[WalkStep, ...] = ()
    tool_runs: tuple[tuple[State, ToolRun], ...] = ()
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    completed: tuple[Route, ...] = ()
    queued: tuple[Route, ...] = ()
    dropped: tuple[Route, ...] = ()
    went_back: str = ""
    rejected: tuple[RejectedValue, ...] = ()
    ignored: tuple[str, ...] = ()


MoveGenerator = Generator[ToolRunRequest, ToolRunResult, MoveResult]
