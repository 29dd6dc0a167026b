"""Where a conversation goes next: pure code over the routes, the session, and what was understood.

`move` is a generator: it yields each tool that a state runs and is sent what came of it, so that nothing here waits
for anything. A walk enters no state more than twice, so it ends.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from tellback.agent.choosing import DEFAULT_THRESHOLDS, RouteChoice, Thresholds, choose_route
from tellback.agent.moves import Interpretation, MoveResult, RejectedValue, ToolRunRequest, ToolRunResult, WalkStep
from tellback.agent.route import Route
from tellback.agent.session import SessionState, enter_route, leave_route
from tellback.agent.walking import RouteWalk, retry_condition

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

MoveGenerator = Generator[ToolRunRequest, ToolRunResult, MoveResult]


def move(
    routes: Mapping[str, Route],
    session: SessionState,
    interpretation: Interpretation,
    now: datetime,
    *,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    after_decision: bool = False,
) -> MoveGenerator:
    """Choose the route, take in what was said, and walk on to the state that speaks next.

    With `decides` a waiting call of the current state has been decided: the walk goes on with it.
    """
    if after_decision:
        choice = RouteChoice(_find_current_route(routes, session), "a decision was taken")
    else:
        choice = choose_route(routes, session, interpretation.scores, thresholds, interpretation.true_conditions)
    route, previous = choice.route, session
    session = _enter_chosen_route(route, session, now)
    if route is None and previous.current_route is not None and previous.current_route.id in session.paused_routes:
        id = previous.current_route.id
        session = replace(
            session,
            paused_routes={
                **session.paused_routes,
                id: replace(session.paused_routes[id], dropped=True, pending_calls=()),
            },
        )
    if route is not None:
        session = _with_initial_data(route, session)
    session, changed = _apply_values(session, route, interpretation, now)
    if route is None:
        return MoveResult(session, choice=choice)
    returns_to_route = session.current_route is not previous.current_route
    session = _remember_forgotten(session, interpretation, route.id)
    if returns_to_route and route.id in previous.paused_routes:  # what was corrected meanwhile counts now
        changed = tuple(dict.fromkeys((*previous.paused_routes[route.id].changed, *changed)))
    walk = RouteWalk(
        route, session, interpretation, now, changed, returns_to_route=returns_to_route, after_decision=after_decision
    )
    moved = yield from walk.walk()
    return replace(moved, choice=choice, changed=changed)


def _find_current_route(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    return None if session.current_route is None else routes.get(session.current_route.id)


def _with_initial_data(route: Route, session: SessionState) -> SessionState:
    """A session that was put into the route by hand knows what the route does from the start."""
    if session.progress.path or not route.initial_data:
        return session
    return replace(session, extracted={**copy.deepcopy(route.initial_data), **session.extracted})


def _enter_chosen_route(route: Route | None, session: SessionState, now: datetime) -> SessionState:
    """The session in the chosen route."""
    current = session.current_route
    if route is None:
        return leave_route(session, at=now)
    if current is not None and current.id == route.id:
        return session
    return enter_route(session, route.id, route.title, initial_data=route.initial_data, at=now)


def _apply_values(
    session: SessionState, route: Route | None, interpretation: Interpretation, now: datetime
) -> tuple[SessionState, tuple[str, ...]]:
    """The session with what was said of this route and of those that were left; and which known values changed."""
    paused_routes = dict(session.paused_routes)
    for id in paused_routes.keys() & {*interpretation.data, *interpretation.forgotten}:
        paused = paused_routes[id]
        extracted, corrected = _merge_values(paused.extracted, interpretation, id)
        paused_routes[id] = replace(
            paused,
            extracted=extracted,
            changed=tuple(dict.fromkeys((*paused.changed, *corrected))),
            pending_calls=() if corrected else paused.pending_calls,  # nobody is to approve what is no longer wanted
        )
    if route is None:
        return replace(session, paused_routes=paused_routes), ()
    extracted, changed = _merge_values(session.extracted, interpretation, route.id)
    if extracted == session.extracted and paused_routes == session.paused_routes:
        return session, ()
    metadata = {**session.metadata, "last_updated_at": now}
    return replace(session, extracted=extracted, paused_routes=paused_routes, metadata=metadata), changed


def _remember_forgotten(session: SessionState, interpretation: Interpretation, route_id: str) -> SessionState:
    """Remember what was taken back, so that it is not read from earlier messages again."""
    progress = session.progress
    names = dict.fromkeys((*progress.forgotten, *interpretation.forgotten.get(route_id, ())))
    forgotten = tuple(name for name in names if name not in session.extracted)
    if forgotten == progress.forgotten:
        return session
    return replace(session, progress=replace(progress, forgotten=forgotten))


def _merge_values(
    known: Mapping[str, Any], interpretation: Interpretation, route_id: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is known with what was said, and which of it is not as it was."""
    forgotten = interpretation.forgotten.get(route_id, ())
    updated = {name: value for name, value in known.items() if name not in forgotten}
    updated |= interpretation.data.get(route_id, {})
    return updated, tuple(name for name in known if name not in updated or updated[name] != known[name])
