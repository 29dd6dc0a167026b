"""`move`: choose the route of an interpreted message, and walk it to the state that speaks next. Pure code."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import END_ROUTE
from tellback.agent.flow.interpretation import (
    Interpretation,
    RejectedValue,
    drop_condition,
    resolve_contradictions,
    retry_condition,
)
from tellback.agent.flow.result import (
    MoveGenerator,
    MoveResult,
    ToolRunRequest,
    ToolRunResult,
    WalkStep,
)
from tellback.agent.flow.route_choice import (
    DEFAULT_THRESHOLDS,
    RouteChoice,
    Thresholds,
    choose_route,
    find_current_route,
    find_queued_routes,
    wants_change,
)
from tellback.agent.flow.route_data import collect_done_actions, merge_values, undo_tool_data
from tellback.agent.flow.walk import MAX_EARLIER_RUNS, RouteWalk
from tellback.agent.sessions.session import (
    PausedRoute,
    RouteProgress,
    SessionState,
    drop_paused_route,
    enter_route,
    leave_route,
    reopen_route,
    wait_for_route,
)

__all__ = [
    "Interpretation",
    "MoveGenerator",
    "MoveResult",
    "RejectedValue",
    "ToolRunRequest",
    "ToolRunResult",
    "WalkStep",
    "move",
    "retry_condition",
]


def move(
    routes: Mapping[str, Route],
    session: SessionState,
    interpretation: Interpretation,
    now: datetime,
    *,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    after_decision: bool = False,
) -> MoveGenerator:
    """Choose the route, apply the stated values, and walk to the state that speaks next.

    With `after_decision` a waiting call of the current state has been decided: the walk continues from it. When the
    route ends, a route that waits is resumed in the same turn.

    The generator yields the tools to run. Its return value is a `MoveResult`.

    >>> from datetime import UTC, datetime
    >>> from tellback.agent import Route, create_session
    >>> def search_flights(to: str) -> list[str]:
    ...     return [f"TP1 to {to}"]
    >>> schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    >>> route = Route("Book a flight", gather_schema=schema)
    >>> ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    >>> search = ask.transition_to(tool_state=search_flights)
    >>> understood = Interpretation(data={route.id: {"to": "Rome"}})
    >>> request = next(move({route.id: route}, create_session(), understood, datetime.now(UTC)))
    >>> request.state.title, request.arguments
    ('search_flights', {'to': 'Rome'})
    """
    previous, current = session, find_current_route(routes, session)
    ignored: tuple[str, ...] = ()
    queued: tuple[Route, ...] = ()
    dropped: tuple[Route, ...] = ()
    rejected: tuple[RejectedValue, ...] = ()
    if after_decision:
        choice = RouteChoice(current, "a waiting call was decided")
    else:
        interpretation, ignored = resolve_contradictions(current, session, interpretation)
        choice = choose_route(routes, session, interpretation, thresholds)
        queued = find_queued_routes(routes, session, interpretation, thresholds, choice)
        dropped = _find_dropped_routes(routes, session, interpretation, choice)
        for route in dropped:
            if route.id in session.paused_routes:
                session = drop_paused_route(session, route.id)
    session, completed = _enter_chosen_route(choice, session, interpretation, now)
    if not after_decision:
        session, rejected = _apply_to_other_routes(routes, session, choice.route, queued, interpretation)
    moved = MoveResult(session)
    if choice.route is not None:
        entered = session.current_route is not previous.current_route
        paused = previous.paused_routes.get(choice.route.id)
        if choice.reopens:
            paused = previous.completed_routes[choice.route.id]
        walk = RouteWalk(
            choice.route,
            session,
            interpretation,
            now,
            changed=paused.changed if entered and paused is not None else (),  # corrections made meanwhile apply now
            returns_to_route=entered,
            after_decision=after_decision,
        )
        moved = yield from walk.walk()
        completed = (*completed, *moved.completed)
    while moved.session.current_route is None:
        waiting = [routes[id] for id in moved.session.waiting_routes if id in routes]
        if not waiting:
            break
        resumed = yield from _resume(waiting[-1], moved.session, now)
        completed = (*completed, *resumed.completed)
        moved = _combine(moved, resumed)
    return replace(
        moved,
        choice=choice,
        completed=completed,
        queued=queued,
        dropped=dropped,
        ignored=ignored,
        rejected=(*rejected, *moved.rejected),
    )


def _resume(route: Route, session: SessionState, now: datetime) -> MoveGenerator:
    """Walk a route that waited until another one ended."""
    changed = session.paused_routes[route.id].changed
    session = enter_route(session, route.id, route.title, at=now)
    walk = RouteWalk(route, session, Interpretation(user_spoke=False), now, changed=changed, returns_to_route=True)
    return (yield from walk.walk())


def _combine(first: MoveResult, second: MoveResult) -> MoveResult:
    return replace(
        second,
        walked=(*first.walked, *second.walked),
        tool_runs=(*first.tool_runs, *second.tool_runs),
        rejected=(*first.rejected, *second.rejected),
    )


def _find_dropped_routes(
    routes: Mapping[str, Route], session: SessionState, interpretation: Interpretation, choice: RouteChoice
) -> tuple[Route, ...]:
    """Return the current route and the paused routes that the user no longer wants."""
    ids = [id for id, paused in session.paused_routes.items() if id in routes and not paused.dropped]
    found = [routes[id] for id in ids if drop_condition(routes[id]) in interpretation.true_conditions]
    left = choice.left
    if left is not None and left is not choice.route and drop_condition(left) in interpretation.true_conditions:
        found.append(left)
    return tuple(found)


def _enter_chosen_route(
    choice: RouteChoice, session: SessionState, interpretation: Interpretation, now: datetime
) -> tuple[SessionState, tuple[Route, ...]]:
    """Return the session in the chosen route, and the route that was completed by leaving it."""
    current, route = session.current_route, choice.route
    if route is not None and current is not None and current.id == route.id:
        return _with_initial_data(route, session), ()
    left = choice.left
    is_finished = left is not None and is_at_its_end(left, session)
    if current is not None:
        session = leave_route(session, completed=is_finished, at=now)
        if route is None and not is_finished and current.id in session.paused_routes:
            session = drop_paused_route(session, current.id)
    completed = (left,) if left is not None and is_finished else ()
    if route is None:
        return session, completed
    if choice.reopens:
        return reopen_route(session, route.id, route.title, at=now), completed
    session = _revive(route, session)
    return enter_route(session, route.id, route.title, initial_data=route.initial_data, at=now), completed


def _revive(route: Route, session: SessionState) -> SessionState:
    """Let a dropped route begin again, in a new pass with the values that the user has stated.

    What was done before the user dropped the route stays done, and does not count for the new pass.
    """
    dropped = session.paused_routes.get(route.id)
    if dropped is None or not dropped.dropped:
        return session
    progress = dropped.progress
    earlier_runs = (*progress.earlier_runs, *collect_done_actions(route.states, progress))[-MAX_EARLIER_RUNS:]
    data = undo_tool_data(route, progress.runs.values(), dropped.extracted, {})
    revived = PausedRoute(data, None, RouteProgress(forgotten=progress.forgotten, earlier_runs=earlier_runs))
    return replace(session, paused_routes={**session.paused_routes, route.id: revived})


def is_at_its_end(route: Route, session: SessionState) -> bool:
    """Whether the current state of the route has all it asks for, and nothing follows it.

    After an action, the end of the route may follow it: then the state reports what was done.
    """
    state = None if session.current_state is None else route.state(session.current_state.id)
    if state is None or state.kind != "chat" or session.pending_calls:
        return False
    next_targets = [each.resolve_target() for each in state.transitions if each.condition is None]
    is_report = END_ROUTE in next_targets and bool(collect_done_actions(route.states, session.progress))
    if state.transitions and not is_report:
        return False
    return all(name in session.extracted or not route.schema.fields[name].required for name in state.gather)


def _with_initial_data(route: Route, session: SessionState) -> SessionState:
    """Add the route's initial data to a session that the application put into the route."""
    if session.progress.path or not route.initial_data:
        return session
    return replace(session, extracted={**copy.deepcopy(route.initial_data), **session.extracted})


def _apply_to_other_routes(
    routes: Mapping[str, Route],
    session: SessionState,
    chosen: Route | None,
    queued: tuple[Route, ...],
    interpretation: Interpretation,
) -> tuple[SessionState, tuple[RejectedValue, ...]]:
    """Let the queued routes wait, and apply the stated values to all routes in progress except the chosen one.

    Values of routes that are not in progress are returned as rejected.
    """
    for route in reversed(queued):
        session = _revive(route, session)
        unfinished = session.paused_routes.get(route.id)
        if unfinished is None and wants_change(route, session, interpretation):
            unfinished = session.completed_routes[route.id]
        fresh = PausedRoute(copy.deepcopy(route.initial_data), None, RouteProgress())
        session = wait_for_route(session, route.id, unfinished or fresh)
    rejected: list[RejectedValue] = []
    paused_routes, completed_routes = dict(session.paused_routes), dict(session.completed_routes)
    for id in dict.fromkeys((*interpretation.data, *interpretation.forgotten)):
        if chosen is not None and id == chosen.id:
            continue
        group = paused_routes if id in paused_routes else completed_routes
        if id not in group or id not in routes:
            stated = interpretation.data.get(id, {})
            plain = routes[id].schema.plain(stated) if id in routes else stated
            problem = "its route is not in progress"
            rejected += [RejectedValue(name, value, problem, id, explained=False) for name, value in plain.items()]
            continue
        paused = group[id]
        extracted, changed, refused = merge_values(routes[id], paused.extracted, interpretation)
        rejected += refused
        if extracted != paused.extracted:
            # A call that waits was made with outdated values.
            pending_calls = () if changed else paused.pending_calls
            changed = tuple(dict.fromkeys((*paused.changed, *changed)))
            group[id] = replace(paused, extracted=extracted, changed=changed, pending_calls=pending_calls)
    if (paused_routes, completed_routes) != (session.paused_routes, session.completed_routes):
        session = replace(session, paused_routes=paused_routes, completed_routes=completed_routes)
    return session, tuple(rejected)
