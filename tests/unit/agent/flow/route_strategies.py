"""Random routes, and walks along routes without a model: interpretations and tool results are predefined."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from random import Random
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

from tellback.agent import Agent
from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE, State
from tellback.agent.flow.move import Interpretation, MoveResult, ToolRunRequest, ToolRunResult, move, retry_condition
from tellback.agent.sessions.serialization import session_data_to_state, session_state_to_data
from tellback.agent.sessions.session import PendingCall, SessionState, ToolRun, create_session
from tellback.errors import FlowError
from tellback.tools import as_tool
from tellback.types import ToolCall

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
Routes = Mapping[str, Route]


class Facts(BaseModel):
    """The fields that the random routes gather. Only tools set `out`, and no tool has it as a parameter."""

    a: str
    b: int
    day: date
    note: str | None = None
    out: int | None = None


VALUES: Mapping[str, Sequence[Any]] = {
    "a": ("x", "y"),
    "b": (1, 2),
    "day": (date(2026, 5, 1), date(2026, 6, 1)),
    "note": ("n", "m"),
    "out": (7, 8),
}
WORDS = ("the user is in a hurry", "the user is a member")


def look(a: str, b: int = 0) -> str:
    """Look something up."""
    return f"{a}{b}"


def book(day: date, note: str = "") -> str:
    """Book a day."""
    return f"{day}{note}"


def ping() -> str:
    """Answer without arguments."""
    return "pong"


def knows_a(data: Mapping[str, Any]) -> bool:
    return "a" in data


def is_x(data: Mapping[str, Any]) -> bool:
    return bool(data.get("a") == "x")


def is_one(data: Mapping[str, Any]) -> bool:
    return bool(data.get("b") == 1)


TESTS: tuple[Callable[[Mapping[str, Any]], bool], ...] = (knows_a, is_x, is_one)


LOOK, BOOK, PING = as_tool(look), as_tool(book), as_tool(ping)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of one tool run."""

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


OUTCOMES = (
    Outcome("ok"),
    Outcome("error"),
    Outcome("waiting"),
    Outcome("ok", {"out": 9}),
    Outcome("ok", {"out": None}),
)
"""Outcomes that do not change any tool argument."""
OUTCOMES_WITH_DATA = (
    *OUTCOMES,
    Outcome("ok", {"a": "y"}),
    Outcome("ok", {"b": None, "note": "t"}),
    Outcome("ok", {"out": 3, "b": "many"}),
    Outcome("ok", {"nowhere": 1}),
)
FAILING = (Outcome("error"),)


@dataclass(frozen=True, slots=True)
class RandomTurn:
    """The input of a random turn; `decides` decides a waiting call instead, if there is one."""

    interpretation: Interpretation = Interpretation()
    outcomes: Sequence[Outcome] = FAILING
    decides: bool = False


SEEDS = st.integers(0, 2**32 - 1)
"""The seed of a random conversation. Drawing every part of it with hypothesis would take most of the time."""


class RandomFlows:
    """Generates routes and turns from a seed: the same ones each time."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def choose(self, options: Iterable[Any]) -> Any:
        """Return a random option."""
        return self._random.choice(list(options))

    def happens(self, often: float) -> bool:
        """Return True with the probability `often`."""
        return self._random.random() < often

    def fields(self) -> list[str]:
        """Return some field names."""
        return self._random.sample(sorted(VALUES), self._random.choice([1, 1, 1, 2, 3, 5]))

    def facts(self) -> dict[str, Any]:
        """Return some fields with values."""
        return {name: self._random.choice(VALUES[name]) for name in self.fields()}

    def routes(self, *, end: bool = True, count: int = 2) -> Routes:
        """Return routes of up to eleven states: chains, branches, cycles, tools, ends."""
        built = []
        for number in range(count):
            known = self.facts() if self.happens(0.2) else {}
            wants = [f"the user wants {number}"]
            route = Route(f"Route {number}", conditions=wants, gather_schema=Facts, initial_data=known)
            last = route.initial_state
            for _ in range(self.choose(range(3, 11))):
                last = self._add_transition(route, last, end)
            built.append(route)
        return {route.id: route for route in built}

    def _add_transition(self, route: Route, last: State, end: bool) -> State:
        """Add a transition to a random state; ignore it if the route rejects it."""
        source = last if self.happens(0.85) else self.choose(route.states)
        kind = self.choose(
            ["chat", "chat", "chat", "chat", "tool", "tool", "tool", "tool", "back", "end" if end else "chat"]
        )
        transition: dict[str, Any] = {"condition": self.choose([*WORDS, *TESTS]) if self.happens(0.25) else None}
        if source.kind == "tool":
            transition["on_error"] = self.happens(0.2)
        if kind == "end":
            transition["state"] = END_ROUTE
        elif kind == "back":
            transition["state"] = self.choose(route.states)
        else:
            transition["required_data"] = self.fields() if self.happens(0.2) else []
            transition["skip_if"] = self.choose(TESTS) if self.happens(0.2) else None
        if kind == "chat":
            gather = self.fields() if self.happens(0.5) else []
            transition |= {"chat_state": f"say {len(route.states)}", "gather": gather}
        if kind == "tool":
            mapped = {"a": "note"} if self.happens(0.2) else None
            transition |= {"tool_state": LOOK if mapped else self.choose([LOOK, LOOK, BOOK, PING]), "arguments": mapped}
            transition |= {"save_as": "out" if self.happens(0.3) else None, "repeat": self.happens(0.7)}
        try:
            target = source.transition_to(**transition)
        except FlowError:
            return last
        return target if isinstance(target, State) else last

    def interpretation(self, routes: Routes, scores: Scores | None = None) -> Interpretation:
        """Return a random interpretation of a message."""
        retries = [retry_condition(state) for route in routes.values() for state in route.states if state.tool]
        data = {id: self.facts() if self.happens(0.6) else {} for id in routes}
        forgotten = {id: self.fields() if self.happens(0.2) else [] for id in routes}
        return Interpretation(
            scores=(scores or any_scores)(self, routes),
            data=data,
            forgotten={id: [name for name in names if name not in data[id]] for id, names in forgotten.items()},
            true_conditions=frozenset(each for each in (*WORDS, *retries) if self.happens(0.5)),
        )

    def turns(
        self, routes: Routes, outcomes: Sequence[Outcome] = OUTCOMES_WITH_DATA, scores: Scores | None = None
    ) -> list[RandomTurn]:
        """Return the turns of a conversation."""
        return [
            RandomTurn(
                self.interpretation(routes, scores),
                [self.choose([outcomes[0], self.choose(outcomes)]) for _ in range(3)],
                self.happens(0.4),
            )
            for _ in range(self.choose(range(2, 11)))
        ]


Scores = Callable[[RandomFlows, Routes], Mapping[str, float] | None]


def any_scores(flows: RandomFlows, routes: Routes) -> Mapping[str, float] | None:
    """Return scores that mostly keep the current route."""
    return {id: flows.choose([0, 30, 60, 80, 100]) for id in routes} if flows.happens(0.3) else None


def always(*routes: Route) -> Scores:
    """Return scores that always select one of these routes."""
    return lambda flows, _: {flows.choose(routes).id: 100}


def build_entering_turn(route: Route) -> RandomTurn:
    """Return the turn that enters a route and states many of its fields."""
    facts = {name: VALUES[name][0] for name in ("a", "b", "day")}
    return RandomTurn(Interpretation(scores={route.id: 100}, data={route.id: facts}), (Outcome("ok"),))


def play(routes: Routes, session: SessionState, turn: RandomTurn) -> tuple[MoveResult, list[ToolRunRequest]]:
    """Run a turn; return its result and the tools that it requested."""
    decides = turn.decides and bool(session.pending_calls)
    walk = move(routes, session, Interpretation() if decides else turn.interpretation, NOW, after_decision=decides)
    requests: list[ToolRunRequest] = []
    try:
        request = next(walk)
        while True:
            requests.append(request)
            outcome = turn.outcomes[(len(requests) - 1) % len(turn.outcomes)]
            if decides and len(requests) == 1 and outcome.kind == "waiting":
                outcome = Outcome("error")  # the call was denied
            request = walk.send(_build_tool_result(request, outcome))
    except StopIteration as stop:
        result: MoveResult = stop.value
        return result, requests


def _build_tool_result(request: ToolRunRequest, outcome: Outcome) -> ToolRunResult:
    assert request.state.tool is not None
    run = ToolRun(request.state.tool.name, dict(request.arguments))
    if outcome.kind == "waiting":
        call = ToolCall(f"call_{request.state.id}", run.tool, request.arguments)
        return ToolRunResult(run, pending=PendingCall(request.state.id, call))
    if outcome.kind == "error":
        return ToolRunResult(replace(run, error="it is closed"))
    return ToolRunResult(replace(run, content="done"), 5, outcome.data, {"seen": True})


def store_and_load(routes: Routes, session: SessionState) -> SessionState:
    """Return the session after a round trip through JSON."""
    data = json.loads(json.dumps(session_state_to_data(session), allow_nan=False))
    return Agent("Wanda", routes=list(routes.values())).restore_session(session_data_to_state(session.id, data))


class FlowConversation:
    """A conversation along routes. `tools` maps a tool's name to its return value or to a function that turns its run
    into a result; an exception makes the tool fail, and `WAITS` makes it wait for approval."""

    def __init__(self, *routes: Route, **tools: Any) -> None:
        self.routes = {route.id: route for route in routes}
        self.session = create_session("web-42")
        self.tools = tools
        self.ran: list[tuple[str, Mapping[str, Any]]] = []

    def take_turn(
        self,
        route: Route | None = None,
        *,
        scores: Mapping[Route, float] | None = None,
        forget: Sequence[str] = (),
        holds: Sequence[str] = (),
        decides: bool = False,
        **data: Any,
    ) -> MoveResult:
        """Run a turn; `data` and `forget` belong to the given route, or to the current one."""
        all_scores = (
            None if scores is None and route is None else {each.id: score for each, score in (scores or {}).items()}
        )
        if route is not None:
            all_scores = {**(all_scores or {}), route.id: 90}
        current = self.session.current_route
        route_id = route.id if route is not None else current.id if current is not None else next(iter(self.routes))
        interpretation = Interpretation(
            all_scores, {route_id: data} if data else {}, {route_id: forget} if forget else {}, frozenset(holds)
        )
        walk = move(self.routes, self.session, interpretation, NOW, after_decision=decides)
        try:
            request = next(walk)
            while True:
                request = walk.send(self._run(request))
        except StopIteration as stop:
            result: MoveResult = stop.value
        self.session = result.session
        return result

    def _run(self, request: ToolRunRequest) -> ToolRunResult:
        assert request.state.tool is not None
        name = request.state.tool.name
        outcome = self.tools.get(name, "done")
        run = ToolRun(name, dict(request.arguments))
        if outcome is WAITS:
            return ToolRunResult(
                run, pending=PendingCall(request.state.id, ToolCall(f"call_{name}", name, request.arguments))
            )
        self.ran.append((name, dict(request.arguments)))
        if isinstance(outcome, Exception):
            return ToolRunResult(replace(run, error=str(outcome)))
        if callable(outcome):
            result: ToolRunResult = outcome(replace(run, content="done"))
            return result
        return ToolRunResult(replace(run, content=str(outcome)), outcome)

    @property
    def state_title(self) -> str | None:
        """The description of the current state."""
        return None if self.session.current_state is None else self.session.current_state.description


WAITS = object()
