"""Invariants of every walk, for random routes, interpretations and tool results."""

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
from tellback.agent.flow.move import Interpretation, MoveResult, ToolRunRequest, is_at_its_end
from tellback.agent.sessions.serialization import session_state_to_data
from tellback.agent.sessions.session import PausedRoute, SessionState, create_session
from tests.unit.agent.flow.route_strategies import (
    FAILING,
    OUTCOMES,
    OUTCOMES_WITH_DATA,
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
class PlayedTurn:
    """A turn of a random conversation, with the session before it."""

    routes: Routes
    before: SessionState
    turn: RandomTurn
    result: MoveResult
    requests: list[ToolRunRequest]

    @property
    def decides(self) -> bool:
        """Whether a waiting call was decided in it."""
        return self.turn.decides and bool(self.before.pending_calls)


def play_turns(
    seed: int, outcomes: Sequence[Outcome] = OUTCOMES_WITH_DATA, *, end: bool = True, scores: Scores | None = None
) -> Iterator[PlayedTurn]:
    """Yield the turns of a random conversation."""
    flows = RandomFlows(seed)
    routes = flows.routes(end=end)
    session = create_session("web-42")
    for route in routes.values():
        note(route.describe())
    for turn in [build_entering_turn(next(iter(routes.values()))), *flows.turns(routes, outcomes, scores)]:
        result, requests = play(routes, session, turn)
        note(f"{turn}\n  {[*map(str, result.walked)]}\n  {result.session.extracted}")
        yield PlayedTurn(routes, session, turn, result, requests)
        session = result.session


def stated_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values stated by users; tools also set `out` while they are on the path."""
    return {name: value for name, value in data.items() if name != "out"}


@many
@given(SEEDS)
def test_a_walk_is_bounded_and_runs_each_tool_at_most_once(seed: int) -> None:
    for played in play_turns(seed):
        result = played.result
        states = sum(len(route.states) for route in played.routes.values())
        assert len(result.walked) <= 3 * states + 3
        ids = [each.state.id for each in played.requests]
        assert len(set(ids)) == len(ids)


@many
@given(SEEDS)
def test_the_session_passed_in_is_never_modified(seed: int) -> None:
    flows = RandomFlows(seed)
    routes = flows.routes()
    session = create_session("web-42")
    for turn in [build_entering_turn(next(iter(routes.values()))), *flows.turns(routes)]:
        before = copy.deepcopy(session)
        result, _ = play(routes, session, turn)
        assert session == before
        session = result.session


@many
@given(SEEDS)
def test_the_speaking_state_is_the_current_state_of_the_current_route(seed: int) -> None:
    for played in play_turns(seed):
        result = played.result
        route, state = result.session.current_route, result.session.current_state
        if result.ended or result.route is None:
            assert (route, state, result.state) == (None, None, None)
            continue
        assert route is not None
        assert state is not None
        assert played.routes[route.id] is result.route
        assert result.state is not None
        assert result.route.state(state.id) is result.state
        assert (result.walked[-1].state_id, result.walked[-1].action) == (state.id, "speaks")


@many
@given(SEEDS)
def test_missing_fields_are_needed_and_unknown(seed: int) -> None:
    for played in play_turns(seed):
        result = played.result
        if result.state is None or result.route is None:
            assert not result.missing
            continue
        fields, known = result.route.schema.fields, set(result.session.extracted)
        needed = {name for name in result.state.gather if fields[name].required}
        expected = {
            *result.state.gather,
            *(name for state in result.state.next_states() for name in state.required_data),
        }
        assert needed - known <= set(result.missing) <= expected - known


@many
@given(SEEDS)
def test_a_state_without_its_required_data_is_not_entered(seed: int) -> None:
    for played in play_turns(seed):
        for each in played.requests:
            assert played.decides or set(each.state.required_data) <= set(each.session.extracted), each.state
        previous, now = played.before.current_state, played.result.state
        if now is not None and now.kind == "chat" and (previous is None or previous.id != now.id):
            # A state that asks again for one of its own fields may have entered with it.
            required = set(now.required_data) - set(now.gather)
            assert required <= set(played.result.session.extracted), now


@many
@given(SEEDS)
def test_a_completed_route_is_not_entered_again_below_the_reenter_threshold(seed: int) -> None:
    def low(flows: RandomFlows, routes: Routes) -> dict[str, float] | None:
        first, second = routes
        return {first: flows.choose([40, 74, 74.9]), second: flows.choose([0, 30, 100])} if flows.happens(0.7) else None

    completed = False
    for played in play_turns(seed, scores=low):
        result, first = played.result, next(iter(played.routes.values()))
        assert not completed or result.choice.reopens or result.route is not first
        if result.choice.reopens:
            completed = False
        if result.ended and result.route is first:
            completed = True
            assert result.session.current_route is None
            assert result.session.has_completed(first.id)
            assert first.id not in result.session.paused_routes


@many
@given(SEEDS, st.floats(0, 85))
def test_scores_within_the_margin_never_change_the_route(seed: int, low: float) -> None:
    def scores_within_margin(flows: RandomFlows, routes: Routes) -> dict[str, float]:
        return {id: min(low + 15 * flows.choose(range(100)) / 100, low + 14.99) for id in routes}

    for played in play_turns(seed, end=False, scores=scores_within_margin):
        assert played.result.route is next(iter(played.routes.values()))


@many
@given(SEEDS)
def test_a_paused_route_is_stored_and_restored_unchanged(seed: int) -> None:
    flows = RandomFlows(seed)
    routes = flows.routes(end=False)
    first, second = routes.values()
    session = create_session("web-42")
    for turn in [build_entering_turn(first), *flows.turns(routes, scores=always(first))]:
        session = play(routes, session, turn)[0].session
    if is_at_its_end(first, session):  # then it is completed, not paused
        return
    paused = PausedRoute(session.extracted, session.current_state, session.progress, session.pending_calls)
    for turn in flows.turns(routes, scores=always(second)):
        interpretation = Interpretation(
            turn.interpretation.scores,
            {second.id: turn.interpretation.data[second.id]},
            {},
            turn.interpretation.true_conditions,
        )
        session = play(routes, session, RandomTurn(interpretation, turn.outcomes))[0].session
        assert session.paused_routes[first.id] == paused
    back, _ = play(routes, session, RandomTurn(Interpretation(scores={first.id: 100}), FAILING))
    assert back.route is first
    replaced = [run for runs in paused.progress.replaced_runs.values() for run in runs]
    by_tools = {name for run in (*paused.progress.runs.values(), *replaced) for name in run.changed_values}
    known = {name: value for name, value in stated_values(paused.extracted).items() if name not in by_tools}
    assert known.items() <= back.session.extracted.items()
    assert {*back.session.paused_routes, *back.session.completed_routes} == {second.id}


@many
@given(SEEDS)
def test_forgotten_fields_are_removed_from_current_and_paused_routes(seed: int) -> None:
    for played in play_turns(seed, OUTCOMES):
        result, forgotten = played.result, played.turn.interpretation.forgotten
        if played.decides or result.route is None:
            continue
        by_tools = {"out"}
        assert not (set(forgotten.get(result.route.id, ())) - by_tools) & set(result.session.extracted)
        for id, paused in result.session.paused_routes.items():
            assert not set(forgotten.get(id, ())) & set(paused.extracted)


@many
@given(SEEDS)
def test_stated_values_are_known_after_the_turn(seed: int) -> None:
    for played in play_turns(seed, FAILING):
        result = played.result
        if result.route is not None and not played.decides:
            stated = dict(played.turn.interpretation.data.get(result.route.id, {}))
            listed = {each.field for each in result.rejected}
            known = result.session.extracted
            assert all(known.get(name) == value or name in listed for name, value in stated.items())


@many
@given(SEEDS)
def test_equal_sessions_and_messages_lead_to_equal_results(seed: int) -> None:
    for played in play_turns(seed):
        repeated, requests = play(played.routes, copy.deepcopy(played.before), played.turn)
        assert repeated == played.result
        assert _requested_calls(requests) == _requested_calls(played.requests)


@settings(deadline=None, max_examples=100)
@given(SEEDS)
def test_storing_the_session_between_turns_changes_nothing(seed: int) -> None:
    for played in play_turns(seed):
        result = played.result
        repeated, requests = play(played.routes, store_and_load(played.routes, played.before), played.turn)
        assert session_state_to_data(repeated.session) == session_state_to_data(result.session)
        assert (repeated.state, repeated.missing, repeated.walked) == (result.state, result.missing, result.walked)
        assert (repeated.tool_runs, repeated.changed) == (result.tool_runs, result.changed)
        assert _requested_calls(requests) == _requested_calls(played.requests)


def _requested_calls(requests: list[ToolRunRequest]) -> list[tuple[State, Any]]:
    return [(each.state, each.arguments) for each in requests]


@many
@given(SEEDS)
def test_tool_results_on_the_path_never_used_outdated_arguments(seed: int) -> None:
    for played in play_turns(seed, OUTCOMES):
        result = played.result
        if result.route is None or result.ended:
            continue
        for state in _passed(result, result.route):
            recorded = result.session.progress.runs[state.id].arguments
            present = _arguments(result.route, state, result.session)
            assert {name: present.get(name) for name in recorded} == recorded, state


def _passed(result: MoveResult, route: Route) -> list[State]:
    """Return the repeatable tools on the path that have run and did not stop the conversation."""
    progress = result.session.progress
    states = [route.state(id) for id in progress.path if id in progress.runs]
    return [state for state in states if state is not None and state.repeat and state is not result.state]


def _arguments(route: Route, state: State, session: SessionState) -> dict[str, Any]:
    assert state.tool is not None
    sources = (
        state.arguments
        if isinstance(state.arguments, dict)
        else {name: name for name in state.tool.parameters["properties"]}
    )
    return route.schema.plain(
        {name: session.extracted[sources[name]] for name in sources if sources[name] in session.extracted}
    )


@many
@given(SEEDS)
def test_a_tool_with_repeat_false_succeeds_once_for_each_arguments_in_a_route_without_loops(seed: int) -> None:
    completed: list[tuple[str, str]] = []
    for played in play_turns(seed, end=False, scores=lambda *_: None):
        route = played.result.route
        assert route is not None
        if _leads_back(route):
            return
        completed += [
            (state.id, repr(run.gathered_arguments))
            for state, run in played.result.tool_runs
            if not state.repeat and run.error is None
        ]
        assert len(set(completed)) == len(completed)


def _leads_back(route: Route) -> bool:
    order = {state.id: number for number, state in enumerate(route.states)}
    return any(order[target.id] <= order[state.id] for state in route.states for target in state.next_states())


@many
@given(SEEDS)
def test_a_tool_that_was_not_approved_is_not_passed(seed: int) -> None:
    for played in play_turns(seed, (Outcome("waiting"),)):
        if played.turn.outcomes[0].kind != "waiting":
            continue
        for state, run in played.result.tool_runs:
            assert run.error is not None, state
        unrun = {each.state.id for each in played.requests[played.decides :]}
        assert not unrun or (played.result.state is not None and unrun == {played.result.state.id})


@many
@given(SEEDS)
def test_an_earlier_result_is_only_reused_if_the_tool_ran(seed: int) -> None:
    ran: set[str] = set()
    for played in play_turns(seed):
        ran |= {state.id for state, _ in played.result.tool_runs}
        assert {step.state_id for step in played.result.walked if step.action == "kept"} <= ran


@many
@given(SEEDS)
def test_a_turn_without_values_loses_no_data(seed: int) -> None:
    for played in play_turns(seed, FAILING):
        session = played.result.session
        silent, _ = play(played.routes, session, RandomTurn(Interpretation(), FAILING))
        # A new pass has its own data, and a completed route makes room for one that waits.
        if silent.completed or any(step.action == "repeats" for step in silent.walked):
            continue
        assert stated_values(silent.session.extracted) == stated_values(session.extracted)
        assert silent.session.paused_routes == session.paused_routes
