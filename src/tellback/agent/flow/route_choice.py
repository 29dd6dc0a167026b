"""Choose the route of a conversation by the model's scores: pure code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tellback.agent.definitions.route import Route
from tellback.agent.sessions.session import SessionState
from tellback.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How sure the model must be, from 0 to 100: to enter a route, to enter one again that was completed, and by how
    much another route must beat the current one.

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
                raise InvalidArgumentError(f"{name} is a number from 0 to 100, not {value!r:.80}.")


DEFAULT_THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """A route, or none, and why."""

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
    """The route to be in. Another takes over only if it beats the current one by the margin, so that a conversation
    does not flap between two; one that was completed is entered again only if the user clearly asks for it."""
    current = find_current_route(routes, session)
    is_dropped = current is not None and drop_condition(current) in true_conditions
    if scores is None:
        if is_dropped:
            return RouteChoice(None, "the user no longer wants it")
        if current is not None:
            return RouteChoice(current, "nothing else was to be decided")
        sole_route = find_sole_route(routes, session)
        return RouteChoice(sole_route, "it is the only one" if sole_route is not None else "no route was to be decided")
    current_score = scores.get(current.id, 0) if current is not None else 0
    best, best_score = _find_best_other_route(routes, session, scores, thresholds, current)
    is_beaten = best is not None and best_score >= current_score + thresholds.margin
    if is_dropped and not is_beaten:
        return RouteChoice(None, "the user no longer wants it")
    if best is None:
        return RouteChoice(current, "no other route is meant" if current is not None else "no route is meant")
    if current is None:
        return RouteChoice(best, f"it is meant ({best_score:g})")
    if is_beaten:
        return RouteChoice(best, f"it is meant ({best_score:g}, not {current_score:g})")
    return RouteChoice(
        current, f"{best.title!r} ({best_score:g}) does not beat it ({current_score:g}) by {thresholds.margin:g}"
    )


def find_current_route(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    """The route that a session is in, if there still is one of that id."""
    return None if session.current_route is None else routes.get(session.current_route.id)


def drop_condition(route: Route) -> str:
    """What the user must want for a route to be left without another."""
    return f"the user no longer wants this: {route.title}"


def find_sole_route(routes: Mapping[str, Route], session: SessionState) -> Route | None:
    """The route that is entered without asking: the only one, without a condition, and not completed or dropped."""
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
