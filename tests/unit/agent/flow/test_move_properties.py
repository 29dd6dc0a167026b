"""What holds of every walk, whatever the routes, whatever was heard, and whatever tools give."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.flow.move import Interpretation, MoveResult, ToolRunRequest
from tellback.agent.sessions.serialization import session_state_to_data
from tellback.agent.sessions.session import PausedRoute, SessionState, create_session
from tests.unit.agent.flow.route_strategies import (
    FAILING,
    LOUD,
    QUIET,
    SEEDS,
    Outcome,
    RandomFlows,
    RandomTurn,
    Routes,
    Scores,
    always,
    build_entering_turn,
    play,
    store_and_load,
)

pytestmark = pytest.mark.slow

many = settings(deadline=None, max_examples=200)


@dataclass(frozen=True, slots=True)
class Played:
    """A turn of a random conversation, with the session before it."""

    routes: Routes
    before: SessionState
    turn: RandomTurn
    moved: MoveResult
    wanted: list[ToolRunRequest]

    @property
    def decides(self) -> bool:
        """Whether a waiting call was decided in it."""
        return self.turn.decides and bool(self.before.pending_calls)


def plays(
    seed: int, outcomes: Sequence[Outcome] = LOUD, *, end: bool = True, scores: Scores | None = None
) -> Iterator[Played]:
    """The turns of a random conversation."""
    chance = RandomFlows(seed)
    routes = chance.routes(end=end)
    session = create_session("web-42")
    for route in routes.values():
        note(route.describe())
    for turn in [build_entering_turn(next(iter(routes.values()))), *chance.turns(routes, outcomes, scores)]:
        moved, wanted = play(routes, session, turn)
        note(f"{turn}\n  {[*map(str, moved.walked)]}\n  {moved.session.extracted}")
        yield Played(routes, session, turn, moved, wanted)
        session = moved.session


def stated(data: Mapping[str, Any]) -> dict[str, Any]:
    """What users have said; `out` is also written by tools, and is there as long as they are on the path."""
    return {name: value for name, value in data.items() if name != "out"}


@many
@given(SEEDS)
def test_a_walk_ends_within_the_number_of_states_and_runs_no_tool_twice(seed: int) -> None:
    for played in plays(seed):
        moved = played.moved
        assert len(moved.walked) <= (0 if moved.route is None else 2 * len(moved.route.states) + 1)
        ids = [each.state.id for each in played.wanted]
        assert len(set(ids)) == len(ids)


@many
@given(SEEDS)
def test_the_session_that_was_given_is_never_changed(seed: int) -> None:
    chance = RandomFlows(seed)
    routes = chance.routes()
    session = create_session("web-42")
    for turn in [build_entering_turn(next(iter(routes.values()))), *chance.turns(routes)]:
        before = copy.deepcopy(session)
        moved, _ = play(routes, session, turn)
        assert session == before
        session = moved.session


@many
@given(SEEDS)
def test_the_state_that_speaks_is_the_current_one_of_the_current_route(seed: int) -> None:
    for played in plays(seed):
        moved = played.moved
        route, state = moved.session.current_route, moved.session.current_state
        if moved.ended or moved.route is None:
            assert (route, state, moved.state) == (None, None, None)
            continue
        assert route is not None
        assert state is not None
        assert played.routes[route.id] is moved.route
        assert moved.state is not None
        assert moved.route.state(state.id) is moved.state
        assert (moved.walked[-1].state_id, moved.walked[-1].action) == (state.id, "speaks")


@many
@given(SEEDS)
def test_what_is_missing_is_what_the_state_needs_and_nobody_knows(seed: int) -> None:
    for played in plays(seed):
        moved = played.moved
        if moved.state is None or moved.route is None:
            assert not moved.missing
            continue
        fields, known = moved.route.schema.fields, set(moved.session.extracted)
        needed = {name for name in moved.state.gather if fields[name].required}
        wanted = {*moved.state.gather, *(name for state in moved.state.next_states() for name in state.required_data)}
        assert needed - known <= set(moved.missing) <= wanted - known


@many
@given(SEEDS)
def test_a_state_without_its_required_data_is_not_entered(seed: int) -> None:
    for played in plays(seed):
        for each in played.wanted:
            assert played.decides or set(each.state.required_data) <= set(each.session.extracted), each.state
        at, now = played.before.current_state, played.moved.state
        if now is not None and now.kind == "chat" and (at is None or at.id != now.id):
            assert set(now.required_data) <= set(played.moved.session.extracted), now


@many
@given(SEEDS)
def test_a_completed_route_is_left_and_not_entered_again_unless_it_is_clearly_meant(seed: int) -> None:
    def low(chance: RandomFlows, routes: Routes) -> dict[str, float] | None:
        first, second = routes
        return (
            {first: chance.choose([40, 74, 74.9]), second: chance.choose([0, 30, 100])} if chance.happens(0.7) else None
        )

    completed = False
    for played in plays(seed, scores=low):
        moved, first = played.moved, next(iter(played.routes.values()))
        assert not completed or moved.route is not first
        if moved.ended and moved.route is first:
            completed = True
            assert moved.session.current_route is None
            assert moved.session.has_completed(first.id)
            assert first.id not in moved.session.paused_routes


@many
@given(SEEDS, st.floats(0, 85))
def test_scores_within_the_margin_never_change_the_route(seed: int, low: float) -> None:
    def banded(chance: RandomFlows, routes: Routes) -> dict[str, float]:
        return {id: min(low + 15 * chance.choose(range(100)) / 100, low + 14.99) for id in routes}

    for played in plays(seed, end=False, scores=banded):
        assert played.moved.route is next(iter(played.routes.values()))


@many
@given(SEEDS)
def test_a_left_route_is_kept_as_it_was_and_comes_back_so(seed: int) -> None:
    chance = RandomFlows(seed)
    routes = chance.routes(end=False)
    first, second = routes.values()
    session = create_session("web-42")
    for turn in [build_entering_turn(first), *chance.turns(routes, scores=always(first))]:
        session = play(routes, session, turn)[0].session
    kept = PausedRoute(session.extracted, session.current_state, session.progress, session.pending_calls)
    for turn in chance.turns(routes, scores=always(second)):
        interpretation = Interpretation(
            turn.interpretation.scores,
            {second.id: turn.interpretation.data[second.id]},
            {},
            turn.interpretation.true_conditions,
        )
        session = play(routes, session, RandomTurn(interpretation, turn.outcomes))[0].session
        assert session.paused_routes[first.id] == kept
    back, _ = play(routes, session, RandomTurn(Interpretation(scores={first.id: 100}), FAILING))
    assert back.route is first
    by_tools = {name for run in kept.progress.runs.values() for name in run.changed_values}
    known = {name: value for name, value in stated(kept.extracted).items() if name not in by_tools}
    assert known.items() <= back.session.extracted.items()
    assert set(back.session.paused_routes) == {second.id}


@many
@given(SEEDS)
def test_what_is_forgotten_is_gone_in_this_route_and_in_those_that_were_left(seed: int) -> None:
    for played in plays(seed, QUIET):
        moved, forgotten = played.moved, played.turn.interpretation.forgotten
        if played.decides or moved.route is None:
            continue
        by_tools = {"out"}
        assert not (set(forgotten.get(moved.route.id, ())) - by_tools) & set(moved.session.extracted)
        for id, left in moved.session.paused_routes.items():
            assert not set(forgotten.get(id, ())) & set(left.extracted)


@many
@given(SEEDS)
def test_what_was_heard_is_known_afterwards(seed: int) -> None:
    for played in plays(seed, FAILING):
        moved = played.moved
        if moved.route is not None and not played.decides:
            assert played.turn.interpretation.data.get(moved.route.id, {}).items() <= moved.session.extracted.items()


@many
@given(SEEDS)
def test_equal_sessions_that_hear_the_same_go_the_same_way(seed: int) -> None:
    for played in plays(seed):
        again, wanted = play(played.routes, copy.deepcopy(played.before), played.turn)
        assert again == played.moved
        assert _asked(wanted) == _asked(played.wanted)


@settings(deadline=None, max_examples=100)
@given(SEEDS)
def test_storing_the_session_between_turns_changes_nothing(seed: int) -> None:
    for played in plays(seed):
        moved = played.moved
        again, wanted = play(played.routes, store_and_load(played.routes, played.before), played.turn)
        assert session_state_to_data(again.session) == session_state_to_data(moved.session)
        assert (again.state, again.missing, again.walked) == (moved.state, moved.missing, moved.walked)
        assert (again.tool_runs, again.changed) == (moved.tool_runs, moved.changed)
        assert _asked(wanted) == _asked(played.wanted)


def _asked(wanted: list[ToolRunRequest]) -> list[tuple[State, Any]]:
    return [(each.state, each.arguments) for each in wanted]


@many
@given(SEEDS)
def test_no_tool_result_on_the_path_is_of_values_that_were_corrected(seed: int) -> None:
    for played in plays(seed, QUIET):
        moved = played.moved
        if moved.route is None or moved.ended:
            continue
        for state in _passed(moved, moved.route):
            recorded = moved.session.progress.runs[state.id].arguments
            present = _arguments(moved.route, state, moved.session)
            assert {name: present.get(name) for name in recorded} == recorded, state


def _passed(moved: MoveResult, route: Route) -> list[State]:
    """The repeatable tools on the path that have run and are not where the conversation is held up."""
    progress = moved.session.progress
    states = [route.state(id) for id in progress.path if id in progress.runs]
    return [state for state in states if state is not None and state.repeat and state is not moved.state]


def _arguments(route: Route, state: State, session: SessionState) -> dict[str, Any]:
    assert state.tool is not None
    of = (
        state.arguments
        if isinstance(state.arguments, dict)
        else {name: name for name in state.tool.parameters["properties"]}
    )
    return route.schema.plain({name: session.extracted[of[name]] for name in of if of[name] in session.extracted})


@many
@given(SEEDS)
def test_a_tool_that_may_not_repeat_succeeds_once_where_no_way_leads_back(seed: int) -> None:
    done: list[str] = []
    for played in plays(seed, end=False, scores=lambda *_: None):
        route = played.moved.route
        assert route is not None
        if _leads_back(route):
            return
        done += [state.id for state, run in played.moved.tool_runs if not state.repeat and run.error is None]
        assert len(set(done)) == len(done)


def _leads_back(route: Route) -> bool:
    order = {state.id: number for number, state in enumerate(route.states)}
    return any(order[after.id] <= order[state.id] for state in route.states for after in state.next_states())


@many
@given(SEEDS)
def test_a_tool_that_was_never_approved_is_not_passed(seed: int) -> None:
    for played in plays(seed, (Outcome("waiting"),)):
        if played.turn.outcomes[0].kind != "waiting":
            continue
        for state, run in played.moved.tool_runs:
            assert run.error is not None, state
        unrun = {each.state.id for each in played.wanted[played.decides :]}
        assert not unrun or (played.moved.state is not None and unrun == {played.moved.state.id})


@many
@given(SEEDS)
def test_a_tool_is_kept_only_if_it_ran(seed: int) -> None:
    ran: set[str] = set()
    for played in plays(seed):
        assert {step.state_id for step in played.moved.walked if step.action == "kept"} <= ran
        ran |= {state.id for state, _ in played.moved.tool_runs}


@many
@given(SEEDS)
def test_silence_loses_nothing(seed: int) -> None:
    for played in plays(seed, FAILING):
        session = played.moved.session
        silent, _ = play(played.routes, session, RandomTurn(Interpretation(), FAILING))
        assert stated(silent.session.extracted) == stated(session.extracted)
        assert silent.session.paused_routes == session.paused_routes
