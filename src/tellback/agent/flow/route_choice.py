"""Choose the route of a conversation by the model's scores: pure code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tellback.agent.definitions.route import Route
from tellback.agent.flow.interpretation import Interpretation, change_condition, drop_condition, states_fresh_values
from tellback.agent.sessions.session import SessionState
from tellback.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Minimum scores, from 0 to 100: to enter a route, to enter a completed one again, and for a second route of the
    same message, which is entered when the first one ends; and the margin by which another route must beat the current
    one.

    >>> Thresholds(margin=20).enter
    50
    """

    enter: float = 50
    reenter: float = 75
    margin: float = 15
    queue: float = 75

    def __post_init__(self) -> None:
        for name in ("enter", "reenter", "margin", "queue"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 100:
                raise InvalidArgumentError(f"{name} must be a number from 0 to 100, got {value!r:.80}.")


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """The chosen route or None, and the reason. `left` is the route that is current now, if the agent still has it.

    With `reopens` a completed route continues with the data of its last pass, instead of a new pass.
    """

    route: Route | None
    why: str
    left: Route | None = None
    reopens: bool = False


NO_ROUTE_CHOICE = RouteChoice(None, "")


def choose_route(
    routes: Mapping[str, Route],
    session: SessionState,
    interpretation: Interpretation,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> RouteChoice:
    """Choose the route to be in. Another route must beat the current one by the margin, so that the conversation does
    not switch back and forth; a completed route needs a higher score to be entered again."""
    current = find_current_route(routes, session)
    route, why = _choose_by_score(routes, session, interpretation, thresholds, current)
    if route is None:
        changed = _find_changed_route(routes, session, interpretation)
        if changed is not None:
            return RouteChoice(changed, "values of the completed route were changed", current, reopens=True)
    completed = None if route is None else session.completed_routes.get(route.id)
    if route is None or completed is None:
        return RouteChoice(route, why, current)
    return RouteChoice(route, why, current, reopens=wants_change(route, session, interpretation))


def wants_change(route: Route, session: SessionState, interpretation: Interpretation) -> bool:
    """Whether the user wants to change what a completed route did, rather than to do it once more."""
    completed = session.completed_routes.get(route.id)
    if completed is None:
        return False
    return bool(completed.changed) or change_condition(route) in interpretation.true_conditions


def _choose_by_score(
    routes: Mapping[str, Route],
    session: SessionState,
    interpretation: Interpretation,
    thresholds: Thresholds,
    current: Route | None,
) -> tuple[Route | None, str]:
    scores = interpretation.scores
    is_dropped = current is not None and drop_condition(current) in interpretation.true_conditions
    if scores is None:
        if is_dropped:
            return None, "the user dropped the route"
        if current is not None:
            return current, "no routes were scored"
        sole_route = find_sole_route(routes, session)
        return sole_route, "it is the only route" if sole_route is not None else "no routes were scored"
    current_score = scores.get(current.id, 0) if current is not None else 0
    others = _rank_other_routes(routes, session, interpretation, thresholds, current)
    best, best_score = others[0] if others else (None, -1.0)
    is_beaten = best is not None and best_score >= current_score + thresholds.margin
    if is_dropped and not is_beaten:
        return None, "the user dropped the route"
    if best is None:
        return current, "no other route scored enough" if current is not None else "no route scored enough"
    if current is None:
        return best, f"it scored highest ({best_score:g})"
    if is_beaten:
        return best, f"it scored {best_score:g}, the current route {current_score:g}"
    return current, f"{best.title!r} ({best_score:g}) does not beat it ({current_score:g}) by {thresholds.margin:g}"


def find_queued_routes(
    routes: Mapping[str, Route],
    session: SessionState,
    interpretation: Interpretation,
    thresholds: Thresholds,
    choice: RouteChoice,
) -> tuple[Route, ...]:
    """Return the other routes that the message asks for, the one with the highest score first.

    They wait until the chosen route ends. A route that the message leaves is not among them.
    """
    if choice.route is None or interpretation.scores is None:
        return ()
    others = _rank_other_routes(routes, session, interpretation, thresholds, choice.left)
    return tuple(route for route, score in others if route is not choice.route and score >= thresholds.queue)


def find_changed_routes(
    routes: Mapping[str, Route], session: SessionState, interpretation: Interpretation, chosen: Sequence[Route]
) -> tuple[Route, ...]:
    """Return the completed routes whose data the message changes, besides the chosen ones. They are continued later."""
    return tuple(
        route
        for id, route in routes.items()
        if id in session.completed_routes
        and route not in chosen
        and (
            change_condition(route) in interpretation.true_conditions
            or states_fresh_values(session, id, interpretation)
            or interpretation.forgotten.get(id)
        )
    )


def find_current_route(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    """Return the session's current route, if the agent still has it."""
    return None if session.current_route is None else routes.get(session.current_route.id)


def find_sole_route(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    """Return the only route if it may be entered without a score: no conditions, not completed and not dropped."""
    if len(routes) != 1:
        return None
    [route] = routes.values()
    paused = session.paused_routes.get(route.id)
    if route.conditions or session.has_completed(route.id) or (paused is not None and paused.dropped):
        return None
    return route


def _rank_other_routes(
    routes: Mapping[str, Route],
    session: SessionState,
    interpretation: Interpretation,
    thresholds: Thresholds,
    current: Route | None,
) -> list[tuple[Route, float]]:
    """Return the routes other than the current one that scored enough, the highest score first."""
    scores = interpretation.scores or {}
    found = [
        (route, scores[id])
        for id, route in routes.items()
        if route is not current and id in scores and _may_enter(route, session, interpretation, scores[id], thresholds)
    ]
    return sorted(found, key=lambda each: -each[1])


def _may_enter(
    route: Route, session: SessionState, interpretation: Interpretation, score: float, thresholds: Thresholds
) -> bool:
    if route.id in session.paused_routes and drop_condition(route) in interpretation.true_conditions:
        return False
    if not session.has_completed(route.id):
        return score >= thresholds.enter
    # A question about a completed action, or thanks, must not begin it once more.
    is_no_wish = interpretation.only_asks or interpretation.is_remark
    return score >= thresholds.reenter and not (
        is_no_wish and route.has_actions and not interpretation.has_values(route.id)
    )


def _find_changed_route(
    routes: Mapping[str, Route], session: SessionState, interpretation: Interpretation
) -> Route | None:
    """Return the route completed last of those whose data the message changes."""
    for visit in reversed(session.route_history):
        route = routes.get(visit.route_id)
        if route is None or route.id not in session.completed_routes:
            continue
        if change_condition(route) in interpretation.true_conditions:
            return route
        if states_fresh_values(session, route.id, interpretation) or interpretation.forgotten.get(route.id):
            return route
    return None
