"""Run the tools of states: with approval by a person, and without a second run when a failed turn is retried."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tellback.agent.definitions.route import Route
from tellback.agent.flow.move import MoveResult, ToolRunRequest, ToolRunResult, is_at_its_end
from tellback.agent.flow.route_choice import find_current_route
from tellback.agent.flow.route_data import add_done_action
from tellback.agent.sessions.session import PendingCall, SessionState, ToolRun, enter_route, wait_for_route
from tellback.chat.approval import Approval, apply_decision, as_approvals, validate_runnable
from tellback.errors import AlreadyDecidedError, ConfigurationError, InvalidArgumentError
from tellback.tools import Tool, dispatch
from tellback.tools.context import ToolUpdate
from tellback.turns.request import TurnLog
from tellback.types import ToolCall, ToolResult
from tellback.types.conversations import ToolInvocation
from tellback.types.ids import new_id
from tellback.types.jsontext import dump_json

if TYPE_CHECKING:
    from tellback.agent.agent import Agent

MAX_ATTEMPTS = 1_000
ATTEMPT_TTL = 900.0

OUTCOME_UNKNOWN = "This call was approved and started before, and its outcome is unknown. It was not started again."


@dataclass(slots=True)
class TurnAttempt:
    """Tool results of one turn: by approved call, or by state and arguments; and the last result of each state.

    `running` are tools in threads, by state, which continue when their turn is cancelled.
    """

    runs: dict[str, tuple[ToolRunResult, ToolInvocation]] = field(default_factory=dict)
    states: dict[str, tuple[ToolRunResult, ToolInvocation]] = field(default_factory=dict)
    running: dict[str, asyncio.Future[tuple[ToolRunResult, ToolInvocation]]] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)


class TurnAttempts:
    """The tool results of turns that have not succeeded, by session and version: a retry of the turn reuses them.

    An attempt is removed when its turn succeeds, and after 15 minutes. The ids of decided calls are stored longer, up
    to a maximum number.
    """

    def __init__(self) -> None:
        self._attempts: OrderedDict[tuple[Any, ...], TurnAttempt] = OrderedDict()
        self._decided: OrderedDict[str, None] = OrderedDict()

    def get_or_create(self, key: tuple[Any, ...]) -> TurnAttempt:
        """Return the attempt of the turn, to which tools add their results. Create it if it does not exist."""
        now = time.monotonic()
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.started_at >= now - ATTEMPT_TTL:
            return attempt
        while self._attempts and (
            len(self._attempts) >= MAX_ATTEMPTS or next(iter(self._attempts.values())).started_at < now - ATTEMPT_TTL
        ):
            self._attempts.popitem(last=False)
        return self._attempts.setdefault(key, TurnAttempt())

    def forget(self, key: tuple[Any, ...]) -> None:
        self._attempts.pop(key, None)

    def mark_decided(self, call_id: str) -> None:
        """Store that a call was decided and its turn succeeded."""
        self._decided[call_id] = None
        if len(self._decided) > 10 * MAX_ATTEMPTS:
            self._decided.popitem(last=False)

    def was_decided(self, call_id: str) -> bool:
        return call_id in self._decided


class StateToolRunner:
    """Runs tools of states. `invocations` are the calls so far, in order."""

    def __init__(self, attempt: TurnAttempt, approvals: Mapping[str, Approval]) -> None:
        self.invocations: list[ToolInvocation] = []
        self.turn_log: TurnLog | None = None
        self._attempt = attempt
        self._approvals = approvals
        self._updates: list[ToolUpdate] = []

    def add_update(self, update: ToolUpdate) -> None:
        self._updates.append(update)

    def recover_actions(self, moved: MoveResult, routes: Mapping[str, Route]) -> MoveResult:
        """Add the actions of an earlier attempt at this turn that this attempt has not reached: they stay done."""
        session = moved.session
        used = {each.id for each in self.invocations}
        for state_id, (result, invocation) in self._attempt.states.items():
            state = next((found for route in routes.values() if (found := route.state(state_id)) is not None), None)
            if state is not None and state.is_action and invocation.id not in used and result.run.error is None:
                saved = {} if state.save_as is None else {state.save_as: result.value}
                session = add_done_action(session, state, result.run, {**saved, **result.data})
        return moved if session is moved.session else replace(moved, session=session)

    def has_run(self, call: ToolCall) -> bool:
        """Whether a waiting call was approved and run in an earlier attempt of this turn."""
        return call.id in self._attempt.runs

    async def run(self, request: ToolRunRequest) -> ToolRunResult:
        """Run the tool of a state, unless it needs approval first or ran in an earlier attempt."""
        state, tool = request.state, request.state.tool
        assert tool is not None
        pending = next((each.call for each in request.session.pending_calls if each.state_id == state.id), None)
        if state.id in self._attempt.running:  # wait for the tool of a cancelled attempt
            await asyncio.wait([self._attempt.running[state.id]])
        earlier = None if pending is None else self._attempt.runs.get(pending.id)
        if earlier is None and not state.repeat:
            earlier = self._attempt.states.get(state.id)
        if earlier is not None:
            return self._record(earlier)
        call = ToolCall(new_id("call"), tool.name, request.arguments)
        key = dump_json([state.id, call.input])
        if tool.requires_approval:
            outcome = await self._resolve_decision(pending, call, tool)
            if outcome is None:
                return ToolRunResult(ToolRun(tool.name, call.input), pending=PendingCall(state.id, call))
            if isinstance(outcome, ToolResult):
                refused = ToolRun(tool.name, call.input, error=outcome.content)
                self.invocations.append(ToolInvocation(call.id, call.name, call.input, outcome.content, is_error=True))
                return ToolRunResult(refused)
            call = outcome
            key = call.id
        elif key in self._attempt.runs:
            return self._record(self._attempt.runs[key])
        return self._record(await self._dispatch(state.id, key, call, tool))

    def _record(self, outcome: tuple[ToolRunResult, ToolInvocation]) -> ToolRunResult:
        result, invocation = outcome
        self.invocations.append(invocation)
        return result

    async def _dispatch(
        self, state_id: str, key: str, call: ToolCall, tool: Tool
    ) -> tuple[ToolRunResult, ToolInvocation]:
        async def run() -> tuple[ToolRunResult, ToolInvocation]:
            result = await dispatch(call, {tool.name: tool})
            outcome = self._build_outcome(call, result)
            if not result.is_error or tool.requires_approval:
                self._attempt.runs[key] = self._attempt.states[state_id] = outcome
            return outcome

        if tool.is_async:
            return await run()
        # A thread cannot be stopped. If the turn is cancelled, the result is still stored for a retry.
        running = self._attempt.running[state_id] = asyncio.ensure_future(run())
        running.add_done_callback(lambda _: self._attempt.running.pop(state_id, None))
        return await asyncio.shield(running)

    def _build_outcome(self, call: ToolCall, result: ToolResult) -> tuple[ToolRunResult, ToolInvocation]:
        updates, self._updates = self._updates, []
        invocation = ToolInvocation(call.id, call.name, call.input, result.content, result.is_error)
        run = ToolRun(call.name, dict(call.input), result.content)
        if result.is_error:
            return ToolRunResult(replace(run, content="", error=result.content)), invocation
        data = {name: value for update in updates for name, value in update.data.items()}
        context = {name: value for update in updates for name, value in update.context.items()}
        return ToolRunResult(run, result.value, data, context), invocation

    async def _resolve_decision(
        self, pending: ToolCall | None, call: ToolCall, tool: Tool
    ) -> ToolCall | ToolResult | None:
        """Return the call to run, an error result if it was denied or cannot run, or None if it waits."""
        approval = None if pending is None else self._approvals.get(pending.id)
        if pending is not None and approval is not None:
            outcome = apply_decision(pending, approval)
            if (
                isinstance(outcome, ToolCall)
                and self.turn_log is not None
                and not await self.turn_log.begin_call(outcome)
            ):
                return ToolResult(call.id, OUTCOME_UNKNOWN, is_error=True, name=tool.name)
            return outcome
        try:
            tool.bind(call.input)
        except ValueError as problem:  # a call that cannot run needs no approval
            return ToolResult(call.id, f"Invalid arguments for {tool.name}: {problem}", is_error=True, name=tool.name)
        return None


@dataclass(frozen=True, slots=True)
class ApprovalDecisions:
    """Decisions on waiting calls of a state or, with `resumes_reply`, on calls of a reply in the log; and the session
    in the route of these calls."""

    approvals: dict[str, Approval]
    resumes_reply: bool
    session: SessionState


def resolve_approvals(
    agent: Agent, requested: Any, history: Any, session: SessionState, attempts: TurnAttempts
) -> ApprovalDecisions:
    """Match `approvals` with waiting calls; reject decisions that cannot be carried out."""
    if requested is None:
        return ApprovalDecisions({}, False, session)
    if history is not None:
        raise InvalidArgumentError("approvals resume a waiting turn: pass them without a history.")
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
        pending_ids = ", ".join(pending_calls) or "none"
        raise InvalidArgumentError(
            f"approvals contains {', '.join(approvals) or 'no call'}, but the waiting calls are: {pending_ids}."
        )
    unknown = approvals.keys() - pending_calls.keys()
    routes = {pending_calls[id][0] for id in approvals.keys() & pending_calls.keys()}
    if unknown or len(routes) > 1:
        raise InvalidArgumentError(
            f"the calls {', '.join(approvals)} belong to different routes, or are not waiting: decide the calls of one"
            f" route at a time. Waiting calls: {', '.join(pending_calls)}."
        )
    [route_id] = routes
    if route_id is not None:
        title = agent.routes_by_id[route_id].title if route_id in agent.routes_by_id else route_id
        interrupted = find_current_route(agent.routes_by_id, session)
        is_over = interrupted is None or is_at_its_end(interrupted, session)
        session = enter_route(session, route_id, title, at=agent.clock())
        if interrupted is not None and not is_over:  # it continues when the decided route ends
            session = wait_for_route(session, interrupted.id, session.paused_routes[interrupted.id])
    for id, approval in approvals.items():
        _validate_decision(agent, session, pending_calls[id][1], approval)
    return ApprovalDecisions(approvals, False, session)


def _validate_decision(agent: Agent, session: SessionState, pending: PendingCall, approval: Approval) -> None:
    """Reject a decision that cannot be carried out, so that the call can be decided again."""
    route = find_current_route(agent.routes_by_id, session)
    state = None if route is None else route.state(pending.state_id)
    if state is None or state.tool is None:
        raise ConfigurationError(
            f"Call {pending.call.id!r} waits in a state that {agent.place} no longer has. No tool was run."
        )
    outcome = apply_decision(pending.call, approval)
    if isinstance(outcome, ToolCall):
        validate_runnable(outcome, state.tool)


def format_decision_note(session: SessionState, approvals: Mapping[str, Approval]) -> str:
    """Format decisions as a message for the model and the log."""
    parts = []
    for each in session.pending_calls:
        approval = approvals.get(each.call.id)
        if approval is not None:
            reason = f" ({approval.reason})" if approval.reason else ""
            parts.append(f"{each.call.name} was {'approved' if approval.approved else 'denied'}{reason}")
    return f"(Decisions by a person: {'; '.join(parts)}.)"
