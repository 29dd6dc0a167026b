"""A conversation ends in the same state regardless of the order in which values were stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given, note, settings

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.flow.move import Interpretation, MoveResult, ToolRunResult, move
from tellback.agent.sessions.session import SessionState, ToolRun, create_session
from tellback.tools import Tool
from tests.unit.agent.flow.route_strategies import NOW, SEEDS

pytestmark = pytest.mark.slow

FIELDS = ("a", "b", "c", "d")
SCHEMA = {"type": "object", "properties": {name: {"type": "integer"} for name in FIELDS}}
TURNS = 6
ENOUGH = 14
"""More turns than the longest route needs when all values are known."""

many = settings(deadline=None, max_examples=300)


def tool_of(name: str, field: str) -> Tool:
    """Return a tool with one optional parameter."""

    def run(**_: int) -> str:
        return "done"

    parameters = {"type": "object", "properties": {field: {"type": "integer"}}}
    return Tool(name=name, description="", parameters=parameters, fn=run)


def is_one(field: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda data: bool(data.get(field) == 1)


class Builder:
    """Builds a route from a seed: states that ask, are skipped, speak or run tools, and branches chosen by code."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.route = Route("Route", gather_schema=SCHEMA)
        self._last = self.route.initial_state
        for number in range(random.randint(3, 6)):
            self._last = self._add(number)
        self._last.transition_to(chat_state="last")

    def _field(self) -> str:
        return self._random.choice(FIELDS)

    def _add(self, number: int) -> State:
        kind = self._random.choice(["ask", "skip", "tool", "chat", "branch"])
        if kind == "branch":
            return self._branch(number)
        if kind == "tool":
            return self._last.transition_to(tool_state=tool_of(f"tool_{number}", self._field()))
        options: dict[str, Any] = {} if kind == "chat" else {"gather": [self._field()]}
        if kind == "skip":
            options["skip_if"] = is_one(self._field())
        return self._last.transition_to(chat_state=f"{kind} {number}", **options)

    def _branch(self, number: int) -> State:
        on = is_one(self._field())
        one = self._last.transition_to(chat_state=f"one {number}", gather=[self._field()], condition=on)
        other = self._last.transition_to(chat_state=f"other {number}", gather=[self._field()])
        joined = one.transition_to(chat_state=f"joined {number}")
        other.transition_to(state=joined)
        return joined


@dataclass(frozen=True, slots=True)
class FinishedConversation:
    """A finished conversation: its stated values and its last result."""

    route: Route
    data: Mapping[str, int]
    last: MoveResult

    @property
    def session(self) -> SessionState:
        return self.last.session


def run_turn(route: Route, session: SessionState, data: Mapping[str, int]) -> MoveResult:
    walk = move({route.id: route}, session, Interpretation(data={route.id: data} if data else {}), NOW)
    try:
        request = next(walk)
        while True:
            assert request.state.tool is not None
            request = walk.send(
                ToolRunResult(ToolRun(request.state.tool.name, dict(request.arguments), content="done"))
            )
    except StopIteration as stop:
        result: MoveResult = stop.value
        return result


def play_conversation(seed: int) -> FinishedConversation:
    """Play a conversation in which values are stated and corrected over several turns."""
    random = Random(seed)
    route = Builder(random).route
    session, data = create_session("web-42"), dict[str, int]()
    for _ in range(TURNS):
        turn_data = {name: random.randint(0, 2) for name in FIELDS if random.random() < 0.3}
        note(f"stated {turn_data}")
        data |= turn_data
        last = run_turn(route, session, turn_data)
        session = last.session
    note(f"{route.describe()}\nknown {data}")
    return FinishedConversation(route, data, last)


def current_title(result: MoveResult) -> str | None:
    return None if result.state is None else result.state.title


@many
@given(seed=SEEDS)
def test_the_final_state_is_reachable_when_all_values_are_stated_first(seed: int) -> None:
    finished = play_conversation(seed)
    session, titles = create_session("web-43"), []
    for number in range(ENOUGH):
        result = run_turn(finished.route, session, finished.data if number == 0 else {})
        session = result.session
        titles.append(current_title(result))
    assert current_title(finished.last) in titles


@many
@given(seed=SEEDS)
def test_known_data_was_stated_and_tools_on_the_path_ran_with_it(seed: int) -> None:
    finished = play_conversation(seed)
    progress = finished.session.progress
    assert finished.session.extracted == finished.data
    for id, run in progress.runs.items():
        state = finished.route.state(id)
        assert state is not None
        assert state.tool is not None
        if id in progress.path:
            [field] = state.tool.parameters["properties"]
            assert run.arguments == ({field: finished.data[field]} if field in finished.data else {}), state.title
