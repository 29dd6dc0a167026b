"""The values of a move: the interpretation of a message, tool runs to make, steps taken, and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.flow.route_choice import NO_ROUTE_CHOICE, RouteChoice
from tellback.agent.sessions.session import PendingCall, SessionState, ToolRun


@dataclass(frozen=True, slots=True)
class RejectedValue:
    """A value that was stated but does not fit the schema; it is not stored, and the user is told why."""

    field: str
    value: Any
    problem: str
    route_id: str = ""


@dataclass(frozen=True, slots=True)
class Interpretation:
    """What was understood: `scores` by route (None: nobody was asked), values and what to forget by route, and the
    conditions that hold, in their words. Without `user_spoke` nobody has said anything."""

    scores: Mapping[str, float] | None = None
    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forgotten: Mapping[str, Sequence[str]] = field(default_factory=dict)
    true_conditions: frozenset[str] = frozenset()
    rejected: tuple[RejectedValue, ...] = ()
    user_spoke: bool = True


@dataclass(frozen=True, slots=True)
class ToolRunRequest:
    """A tool to run, with arguments made of the gathered data."""

    state: State
    arguments: Mapping[str, Any]
    session: SessionState


@dataclass(frozen=True, slots=True)
class ToolRunResult:
    """What came of it. `value` is what the tool gave, `data` and `context` what it wants merged; None removes a field.
    With `pending` it has not run: a person must decide."""

    run: ToolRun
    value: Any = None
    data: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    pending: PendingCall | None = None


@dataclass(frozen=True, slots=True)
class WalkStep:
    """One step of a walk: what was done at a state ("skipped", "ran", "kept", "failed", "waits", "speaks", "ended"),
    and why."""

    state_id: str
    state: str
    action: str
    why: str


@dataclass(frozen=True, slots=True)
class MoveResult:
    """Where it went. `state` is the one that speaks, of `route`; with `ended` the route was completed, and nothing of
    it speaks any more. `missing` are fields that the state still wants."""

    session: SessionState
    route: Route | None = None
    state: State | None = None
    ended: bool = False
    choice: RouteChoice = NO_ROUTE_CHOICE
    walked: tuple[WalkStep, ...] = ()
    tool_runs: tuple[tuple[State, ToolRun], ...] = ()
    missing: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
