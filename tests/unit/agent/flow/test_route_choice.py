"""The choice of a route: thresholds, the margin, completed routes, the sole route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.agent.definitions.route import Route
from tellback.agent.flow.interpretation import Interpretation, drop_condition
from tellback.agent.flow.route_choice import DEFAULT_THRESHOLDS, RouteChoice, Thresholds, choose_route, find_sole_route
from tellback.agent.sessions.session import CurrentRoute, SessionState, create_session, enter_route, leave_route
from tellback.errors import InvalidArgumentError
from tests.unit.agent.flow.route_strategies import NOW

BOOK = Route("Book a flight", conditions=["the user wants to fly"])
TELL = Route("Tell the weather", conditions=["the user asks about the weather"])
PAY = Route("Pay", conditions=["the user wants to pay"])
ROUTES = {route.id: route for route in (BOOK, TELL, PAY)}
ONLY_ROUTE = Route("Order")
scores = st.floats(0, 100)
all_scores = st.fixed_dictionaries({}, optional=dict.fromkeys(ROUTES, scores))


def choose(
    routes: Mapping[str, Route],
    session: SessionState,
    route_scores: Mapping[str, float] | None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    true_conditions: frozenset[str] = frozenset(),
) -> RouteChoice:
    return choose_route(
        routes, session, Interpretation(scores=route_scores, true_conditions=true_conditions), thresholds
    )


def session_in(route: Route) -> SessionState:
    return enter_route(create_session("web-42"), route.id, route.title)


def session_after(route: Route) -> SessionState:
    return leave_route(session_in(route), completed=True)


@pytest.mark.parametrize(("score", "route"), [(49.9, None), (50, BOOK), (100, BOOK)])
def test_a_route_is_entered_from_a_score_of_fifty(score: float, route: Route | None) -> None:
    assert choose(ROUTES, create_session("web-42"), {BOOK.id: score}).route is route


@pytest.mark.parametrize(("score", "route"), [(50, None), (74.9, None), (75, BOOK)])
def test_a_completed_route_is_entered_again_from_a_score_of_seventy_five(score: float, route: Route | None) -> None:
    assert choose(ROUTES, session_after(BOOK), {BOOK.id: score}).route is route


def test_a_completed_route_paused_on_its_next_visit_is_entered_from_fifty() -> None:
    session = leave_route(enter_route(session_after(BOOK), BOOK.id, BOOK.title))
    assert choose(ROUTES, session, {BOOK.id: 50}).route is BOOK


@pytest.mark.parametrize(
    ("current", "other", "route"), [(40, 54.9, BOOK), (40, 55, TELL), (30, 49, BOOK), (90, 100, BOOK)]
)
def test_another_route_must_beat_the_current_one_by_the_margin(current: float, other: float, route: Route) -> None:
    assert choose(ROUTES, session_in(BOOK), {BOOK.id: current, TELL.id: other}).route is route


def test_a_current_route_without_a_score_counts_as_zero() -> None:
    assert choose(ROUTES, session_in(BOOK), {TELL.id: 50}).route is TELL
    assert choose(ROUTES, session_in(BOOK), {}).route is BOOK


def test_without_scores_the_current_route_continues() -> None:
    assert choose(ROUTES, session_in(BOOK), None).route is BOOK
    assert choose(ROUTES, create_session("web-42"), None).route is None


def test_a_sole_route_without_conditions_is_entered_without_a_score_unless_completed() -> None:
    routes = {ONLY_ROUTE.id: ONLY_ROUTE}
    assert choose(routes, create_session("web-42"), None).route is ONLY_ROUTE
    assert choose(routes, session_after(ONLY_ROUTE), None).route is None
    assert choose(routes, session_after(ONLY_ROUTE), {ONLY_ROUTE.id: 75}).route is ONLY_ROUTE
    assert find_sole_route({BOOK.id: BOOK}, create_session("web-42")) is None
    assert find_sole_route({ONLY_ROUTE.id: ONLY_ROUTE, BOOK.id: BOOK}, create_session("web-42")) is None
    assert find_sole_route({}, create_session("web-42")) is None


def test_a_removed_current_route_is_ignored() -> None:
    session = replace(create_session("web-42"), current_route=CurrentRoute("gone", "Gone", NOW))
    assert choose(ROUTES, session, {"gone": 100}).route is None
    assert choose(ROUTES, session, {"gone": 100, BOOK.id: 50}).route is BOOK


def test_the_first_of_equally_scored_routes_is_chosen() -> None:
    assert choose(ROUTES, create_session("web-42"), {PAY.id: 80, TELL.id: 80}).route is TELL


def test_a_dropped_route_is_left_unless_another_route_wins() -> None:
    dropped = frozenset([drop_condition(BOOK)])
    assert choose(ROUTES, session_in(BOOK), {BOOK.id: 40}, true_conditions=dropped).route is None
    assert choose(ROUTES, session_in(BOOK), {BOOK.id: 40, TELL.id: 54}, true_conditions=dropped).route is None
    assert choose(ROUTES, session_in(BOOK), {BOOK.id: 40, TELL.id: 55}, true_conditions=dropped).route is TELL
    assert choose(ROUTES, session_in(TELL), {TELL.id: 40}, true_conditions=dropped).route is TELL
    assert choose(ROUTES, create_session("web-42"), {BOOK.id: 60}, true_conditions=dropped).route is BOOK


def test_thresholds_can_be_configured() -> None:
    strict = Thresholds(enter=80, reenter=90, margin=0)
    assert choose(ROUTES, create_session("web-42"), {BOOK.id: 79}, strict).route is None
    assert choose(ROUTES, session_in(BOOK), {BOOK.id: 80, TELL.id: 80}, strict).route is TELL


@pytest.mark.parametrize("value", [-1, 101, True, "50", None, float("nan"), float("inf")])
def test_invalid_thresholds_raise_invalid_argument_error(value: Any) -> None:
    for name in ("enter", "reenter", "margin", "queue"):
        with pytest.raises(InvalidArgumentError, match=name):
            Thresholds(**{name: value})


@given(all_scores, st.sampled_from([None, BOOK, TELL, PAY]), st.sets(st.sampled_from([BOOK, TELL, PAY])))
def test_the_best_enterable_route_is_chosen(
    given_scores: dict[str, float], current: Route | None, completed_routes: set[Route]
) -> None:
    session = create_session("web-42")
    for route in completed_routes - {current}:
        session = leave_route(enter_route(session, route.id, route.title), completed=True)
    if current is not None:
        session = enter_route(session, current.id, current.title)
    chosen = choose(ROUTES, session, given_scores)
    current_score = 0.0 if current is None else given_scores.get(current.id, 0.0)
    lead = 0 if current is None else 15
    may = [
        route
        for route in ROUTES.values()
        if route is not current
        and given_scores.get(route.id, 0) >= (75 if route in completed_routes else 50)
        and given_scores.get(route.id, 0) >= current_score + lead
    ]
    assert chosen.why
    if not may:
        assert chosen.route is current
    else:
        assert chosen.route in may
        assert given_scores[chosen.route.id] == max(given_scores[route.id] for route in may)
