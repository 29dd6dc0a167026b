"""Decisions on calls of states that wait for a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tellback.agent.session import PendingCall, SessionState, enter_route
from tellback.agent.tries import TurnAttempts
from tellback.chat.approval import Approval, apply_decision, as_approvals, validate_runnable
from tellback.errors import AlreadyDecidedError, ConfigurationError, InvalidArgumentError
from tellback.types import ToolCall

if TYPE_CHECKING:
    from tellback.agent.agent import Agent


@dataclass(frozen=True, slots=True)
class ApprovalDecisions:
    """Decisions on waiting calls of a state; or, with `goes_on`, on calls of a reply that the log holds; and the
    session in the route that waits."""

    approvals: dict[str, Approval]
    resumes_reply: bool
    session: SessionState


def resolve_approvals(
    agent: Agent, requested: Any, history: Any, session: SessionState, attempts: TurnAttempts
) -> ApprovalDecisions:
    """What `approvals` decides; whatever could not be carried out is refused here."""
    if requested is None:
        return ApprovalDecisions({}, False, session)
    if history is not None:
        raise InvalidArgumentError("approvals go on with a turn: pass them without a history.")
    approvals = as_approvals(requested)
    already_decided = [id for id in approvals if attempts.was_decided(id)]
    if already_decided:
        raise AlreadyDecidedError(session.id, already_decided)
    pending_calls: dict[str, tuple[str | None, PendingCall]] = {
        each.call.id: (None, each) for each in session.pending_calls
    }
    for paused_route_id, paused in session.paused_routes.items():
        pending_calls |= {each.call.id: (paused_route_id, each) for each in paused.pending_calls}
    if not approvals or not approvals.keys() & pending_calls.keys():
        if agent.memory is not None:
            return ApprovalDecisions({}, True, session)
        pending_ids = ", ".join(pending_calls) or "nothing"
        raise InvalidArgumentError(
            f"approvals names {', '.join(approvals) or 'no call'}; what waits is: {pending_ids}."
        )
    unknown = approvals.keys() - pending_calls.keys()
    routes = {pending_calls[id][0] for id in approvals.keys() & pending_calls.keys()}
    if unknown or len(routes) > 1:
        raise InvalidArgumentError(
            f"the calls {', '.join(approvals)} wait in different routes, or not at all: decide those of one route"
            f" at a time. What waits is: {', '.join(pending_calls)}."
        )
    [route_id] = routes
    if route_id is not None:
        title = agent.routes_by_id[route_id].title if route_id in agent.routes_by_id else route_id
        session = enter_route(session, route_id, title, at=agent.clock())
    for id, approval in approvals.items():
        _validate_decision(agent, session, pending_calls[id][1], approval)
    return ApprovalDecisions(approvals, False, session)


def _validate_decision(agent: Agent, session: SessionState, pending: PendingCall, approval: Approval) -> None:
    """Refuse a decision that could not be carried out: the call can be decided again."""
    current = session.current_route
    route = None if current is None else agent.routes_by_id.get(current.id)
    state = None if route is None else route.state(pending.state_id)
    if state is None or state.tool is None:
        raise ConfigurationError(
            f"Call {pending.call.id!r} waits in a state that {agent.place} no longer has. Nothing was run."
        )
    outcome = apply_decision(pending.call, approval)
    if isinstance(outcome, ToolCall):
        validate_runnable(outcome, state.tool)


def format_decision_note(session: SessionState, approvals: Mapping[str, Approval]) -> str:
    """A decision in words, for the model and the log."""
    parts = []
    for each in session.pending_calls:
        approval = approvals.get(each.call.id)
        if approval is not None:
            reason = f" ({approval.reason})" if approval.reason else ""
            parts.append(f"{each.call.name} was {'approved' if approval.approved else 'denied'}{reason}")
    return f"(A person decided: {'; '.join(parts)}.)"
