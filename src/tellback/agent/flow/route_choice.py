"""Choose the route of a conversation by the model's scores: pure code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tellback.agent.definitions.route import Route
from tellback.agent.sessions.session import SessionState
from tellback.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Minimum scores, from 0 to 100: to enter a route, to enter a completed one again, and the margin by which another
    route must beat the current one.

    >>> Thresholds(margin=20).enter
    50
    """

    enter: float = 50
    reenter: float = 75
    margin: float = 15

    def __post_init__(self) -> None:
        for name in ("enter", "reenter", "margin"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 100:
                raise InvalidArgumentError(f"{name} must be a number from 0 to 100, got {value!r:.80}.")


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """The chosen route or None, and the reason."""

    route: Route | None
    why: str


NO_ROUTE_CHOICE = RouteChoice(None, "")


def choose_route(
    routes: Mapping[str, Route],
    session: SessionState,
    scores: Mapping[str, float] | None,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
    true_conditions: frozenset[str] = frozenset(),
) -> RouteChoice:
    """Choose the route to be in. Another route must beat the current one by the margin, so that the conversation does
    not switch back and forth; a completed route needs a higher score to be entered again."""
    current = find_current_route(routes, session)
    is_dropped = current is not None and drop_condition(current) in true_conditions
    if scores is None:
        if is_dropped:
            return RouteChoice(None, "the user dropped the route")
        if current is not None:
            return RouteChoice(current, "no routes were scored")
        sole_route = find_sole_route(routes, session)
        return RouteChoice(sole_route, "it is the only route" if sole_route is not None else "no routes were scored")
    current_score = scores.get(current.id, 0) if current is not None else 0
    best, best_score = _find_best_other_route(routes, session, scores, thresholds, current)
    is_beaten = best is not None and best_score >= current_score + thresholds.margin
    if is_dropped and not is_beaten:
        return RouteChoice(None, "the user dropped the route")
    if best is None:
        return RouteChoice(current, "no other route scored enough" if current is not None else "no route scored enough")
    if current is None:
        return RouteChoice(best, f"it scored highest ({best_score:g})")
    if is_beaten:
        return RouteChoice(best, f"it scored {best_score:g}, the current route {current_score:g}")
    return RouteChoice(
        current, f"{best.title!r} ({best_score:g}) does not beat it ({current_score:g}) by {thresholds.margin:g}"
    )


def find_current_route(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    """Return the session's current route, if the agent still has it."""
    return None if session.current_route is None else routes.get(session.current_route.id)


def drop_condition(route: Route) -> str:
    """The condition under which a route is dropped, in words for the model."""
    return f"the user no longer wants this: {route.title}"


def find_sole_route(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    """Return the only route if it may be entered without a score: no conditions, not completed and not dropped."""
    if len(routes) != 1:
        return None
    [route] = routes.values()
    paused = session.paused_routes.get(route.id)
    if route.conditions or session.has_completed(route.id) or (paused is not None and paused.dropped):
        return None
    return route


def _find_best_other_route(
    routes: Mapping[str, Route],
    session: SessionState,
    scores: Mapping[str, float],
    thresholds: Thresholds,
    current: Route | None,
) -> tuple[Route | None, float]:
    best: Route | None = None
    best_score = -1.0
    for id, route in routes.items():
        score = scores.get(id, 0)
        if route is current or score <= best_score:
            continue
        if score >= (thresholds.reenter if session.has_completed(id) else thresholds.enter):
            best, best_score = route, score
    return best, best_score
