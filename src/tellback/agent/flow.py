"""What can be told of a route before anyone talks: ways never taken, states never reached, cycles without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.errors import FlowError

if TYPE_CHECKING:
    from tellback.agent.route import Route
    from tellback.agent.state import State, Transition


def check_route(route: Route) -> None:
    """Refuse a route that can never work as it is written."""
    for state in route.states:
        for way in state.transitions:
            way.end()
    reached = _reached(route)
    for state in route.states:
        if state.id not in reached:
            raise FlowError(state.place, "it is unreachable: no way leads there.")
    for state in route.states:
        _refuse_silent_round(state)


def check_way(route: Route, way: Transition) -> None:
    """Refuse a new way that is never taken, or that closes a round in which nobody speaks."""
    source = way.source
    before = [other for other in source.transitions if other is not way and other.on_error == way.on_error]
    always = next((other for other in before if _always_taken(other)), None)
    if always is not None and way.condition is None:
        raise FlowError(
            source.place,
            f"the way to {_name(way)!r} is never taken, so it is unreachable: the one to {_name(always)!r} comes first"
            " and has no condition. Give one of them a condition.",
        )
    same = next(
        (other for other in before if isinstance(way.condition, str) and other.condition == way.condition), None
    )
    if same is not None and not _needs_data(same):
        raise FlowError(
            source.place,
            f"two ways have the condition {way.condition!r}: the one to {_name(way)!r} is unreachable.",
        )
    _refuse_silent_round(source)


def _needs_data(way: Transition) -> bool:
    from tellback.agent.state import State

    return isinstance(way.target, State) and bool(way.target.required_data)


def _always_taken(way: Transition) -> bool:
    return way.condition is None and not _needs_data(way)


def _name(way: Transition) -> str:
    from tellback.agent.state import State

    return way.target.title if isinstance(way.target, State) else str(way.target)


def _reached(route: Route) -> set[str]:
    found = {route.initial_state.id}
    waiting = [route.initial_state]
    while waiting:
        for state in waiting.pop().follows():
            if state.id not in found:
                found.add(state.id)
                waiting.append(state)
    return found


def _refuse_silent_round(state: State) -> None:
    """A round in which every state may be skipped would be walked without end, and nobody would be asked anything.

    Only what is sure is refused: a condition may end the round, and a tool may change the data.
    """
    if not _may_skip(state):
        return
    trail: list[tuple[State, list[State]]] = [(state, _surely_next(state))]
    seen = {state.id}
    while trail:
        _, ahead = trail[-1]
        if not ahead:
            trail.pop()
            continue
        found = ahead.pop(0)
        if found is state:
            names = " → ".join(repr(each.title) for each, _ in trail)
            raise FlowError(
                state.place,
                f"{names} leads back to {state.title!r} in a cycle of states that may all be skipped: nobody would"
                " speak. One must always speak (a chat_state without gather and skip_if), or a way needs a condition.",
            )
        if found.id not in seen and _may_skip(found):
            seen.add(found.id)
            trail.append((found, _surely_next(found)))


def _surely_next(state: State) -> list[State]:
    from tellback.agent.state import State

    ends = [way.end_if_made() for way in state.transitions if way.condition is None and not way.on_error]
    return [end for end in ends if isinstance(end, State)]


def _may_skip(state: State) -> bool:
    """Whether it can be walked through without a word or a deed."""
    return state.kind == "start" or (state.kind == "chat" and (state.skip_if is not None or bool(state.gather)))
