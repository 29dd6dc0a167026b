"""Decisions on calls of states that wait for a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tellback.agent.session import SessionState, WaitingCall, enter_route
from tellback.agent.tries import Tries
from tellback.chat.approval import Approval, as_approvals, check_runnable, decided
from tellback.errors import AlreadyDecidedError, ConfigurationError, InvalidArgumentError
from tellback.types import ToolCall

if TYPE_CHECKING:
    from tellback.agent.agent import Agent


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions on waiting calls of a state; or, with `goes_on`, on calls of a reply that the log holds; and the
    session in the route that waits."""

    approvals: dict[str, Approval]
    goes_on: bool
    session: SessionState


def decide(agent: Agent, given: Any, history: Any, session: SessionState, tries: Tries) -> Decisions:
    """What `approvals` decides; whatever could not be carried out is refused here."""
    if given is None:
        return Decisions({}, False, session)
    if history is not None:
        raise InvalidArgumentError("approvals go on with a turn: pass them without a history.")
    approvals = as_approvals(given)
    again = [id for id in approvals if tries.was_decided(id)]
    if again:
        raise AlreadyDecidedError(session.id, again)
    places: dict[str, tuple[str | None, WaitingCall]] = {each.call.id: (None, each) for each in session.waiting}
    for of, left in session.left.items():
        places |= {each.call.id: (of, each) for each in left.waiting}
    if not approvals or not approvals.keys() & places.keys():
        if agent.memory is not None:
            return Decisions({}, True, session)
        waits = ", ".join(places) or "nothing"
        raise InvalidArgumentError(f"approvals names {', '.join(approvals) or 'no call'}; what waits is: {waits}.")
    unknown = approvals.keys() - places.keys()
    routes = {places[id][0] for id in approvals.keys() & places.keys()}
    if unknown or len(routes) > 1:
        raise InvalidArgumentError(
            f"the calls {', '.join(approvals)} wait in different routes, or not at all: decide those of one route"
            f" at a time. What waits is: {', '.join(places)}."
        )
    [route_id] = routes
    if route_id is not None:
        title = agent.routes_by_id[route_id].title if route_id in agent.routes_by_id else route_id
        session = enter_route(session, route_id, title, at=agent.clock())
    for id, approval in approvals.items():
        _check(agent, session, places[id][1], approval)
    return Decisions(approvals, False, session)


def _check(agent: Agent, session: SessionState, waiting: WaitingCall, approval: Approval) -> None:
    """Refuse a decision that could not be carried out: the call can be decided again."""
    current = session.current_route
    route = None if current is None else agent.routes_by_id.get(current.id)
    state = None if route is None else route.state(waiting.state_id)
    if state is None or state.tool is None:
        raise ConfigurationError(
            f"Call {waiting.call.id!r} waits in a state that {agent.place} no longer has. Nothing was run."
        )
    outcome = decided(waiting.call, approval)
    if isinstance(outcome, ToolCall):
        check_runnable(outcome, state.tool)


def decision_note(session: SessionState, approvals: Mapping[str, Approval]) -> str:
    """A decision in words, for the model and the log."""
    words = []
    for each in session.waiting:
        approval = approvals.get(each.call.id)
        if approval is not None:
            reason = f" ({approval.reason})" if approval.reason else ""
            words.append(f"{each.call.name} was {'approved' if approval.approved else 'denied'}{reason}")
    return f"(A person decided: {'; '.join(words)}.)"
