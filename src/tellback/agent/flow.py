"""What can be told of a route before anyone talks: ways never taken, states never reached, cycles without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.errors import FlowError

if TYPE_CHECKING:
    from tellback.agent.route import Route
    from tellback.agent.state import State, Transition


def validate_route(route: Route) -> None:
    """Refuse a route that can never work as it is written."""
    for state in route.states:
        for transition in state.transitions:
            transition.resolve_target()
    reachable = _find_reachable(route)
    for state in route.states:
        if state.id not in reachable:
            raise FlowError(state.place, "it is unreachable: no way leads there.")
    for state in route.states:
        _validate_no_silent_cycle(state)


def validate_transition(route: Route, transition: Transition) -> None:
    """Refuse a new way that is never taken, or that closes a round in which nobody speaks."""
    source = transition.source
    before = [
        other for other in source.transitions if other is not transition and other.on_error == transition.on_error
    ]
    always = next((other for other in before if _is_unconditional(other)), None)
    if always is not None and transition.condition is None:
        raise FlowError(
            source.place,
            f"the way to {_target_title(transition)!r} is never taken, so it is unreachable: the one to {_target_title(always)!r} comes first"
            " and has no condition. Give one of them a condition.",
        )
    same = next(
        (
            other
            for other in before
            if isinstance(transition.condition, str) and other.condition == transition.condition
        ),
        None,
    )
    if same is not None and not _target_requires_data(same):
        raise FlowError(
            source.place,
            f"two ways have the condition {transition.condition!r}: the one to {_target_title(transition)!r} is unreachable.",
        )
    _validate_no_silent_cycle(source)


def _target_requires_data(transition: Transition) -> bool:
    from tellback.agent.state import State

    return isinstance(transition.target, State) and bool(transition.target.required_data)


def _is_unconditional(transition: Transition) -> bool:
    return transition.condition is None and not _target_requires_data(transition)


def _target_title(transition: Transition) -> str:
    from tellback.agent.state import State

    return transition.target.title if isinstance(transition.target, State) else str(transition.target)


def _find_reachable(route: Route) -> set[str]:
    found = {route.initial_state.id}
    queue = [route.initial_state]
    while queue:
        for state in queue.pop().next_states():
            if state.id not in found:
                found.add(state.id)
                queue.append(state)
    return found


def _validate_no_silent_cycle(state: State) -> None:
    """A round in which every state may be skipped would be walked without end, and nobody would be asked anything.

    Only what is sure is refused: a condition may end the round, and a tool may change the data.
    """
    if not _can_be_skipped(state):
        return
    path: list[tuple[State, list[State]]] = [(state, _unconditional_targets(state))]
    seen = {state.id}
    while path:
        _, successors = path[-1]
        if not successors:
            path.pop()
            continue
        found = successors.pop(0)
        if found is state:
            names = " → ".join(repr(each.title) for each, _ in path)
            raise FlowError(
                state.place,
                f"{names} leads back to {state.title!r} in a cycle of states that may all be skipped: nobody would"
                " speak. One must always speak (a chat_state without gather and skip_if), or a way needs a condition.",
            )
        if found.id not in seen and _can_be_skipped(found):
            seen.add(found.id)
            path.append((found, _unconditional_targets(found)))


def _unconditional_targets(state: State) -> list[State]:
    from tellback.agent.state import State

    targets = [
        transition.find_target()
        for transition in state.transitions
        if transition.condition is None and not transition.on_error
    ]
    return [target for target in targets if isinstance(target, State)]


def _can_be_skipped(state: State) -> bool:
    """Whether it can be walked through without a word or a deed."""
    return state.kind == "start" or (state.kind == "chat" and (state.skip_if is not None or bool(state.gather)))
