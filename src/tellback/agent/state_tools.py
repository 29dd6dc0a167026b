"""The tools of states, run for a turn: with a person's consent where they need it, and never twice for one try."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from tellback.agent.moves import ToolRunRequest, ToolRunResult
from tellback.agent.session import PendingCall, ToolRun
from tellback.agent.tries import TurnAttempt
from tellback.chat.approval import Approval, apply_decision
from tellback.conversations.turn_requests import TurnLog
from tellback.tools import Tool, dispatch
from tellback.tools.context import ToolUpdate
from tellback.types import ToolCall, ToolResult
from tellback.types.conversations import ToolInvocation
from tellback.types.ids import new_id
from tellback.types.jsontext import dump_json

OUTCOME_UNKNOWN = "It was approved and begun before, and nobody knows whether it took effect. It is not begun again."


class StateToolRunner:
    """Runs tools. `invoked` are the calls so far, in order."""

    def __init__(self, attempt: TurnAttempt, approvals: Mapping[str, Approval]) -> None:
        self.invocations: list[ToolInvocation] = []
        self.turn_log: TurnLog | None = None
        self._attempt = attempt
        self._approvals = approvals
        self._updates: list[ToolUpdate] = []

    def add_update(self, update: ToolUpdate) -> None:
        """Take what a tool gives back besides its result."""
        self._updates.append(update)

    def has_run(self, call: ToolCall) -> bool:
        """Whether a call that waits was approved and run in a first try of this turn."""
        return call.id in self._attempt.runs

    async def run(self, request: ToolRunRequest) -> ToolRunResult:
        """Run the tool of a state, unless a person must decide first, or it ran in a first try."""
        state, tool = request.state, request.state.tool
        assert tool is not None
        pending = next((each.call for each in request.session.pending_calls if each.state_id == state.id), None)
        if state.id in self._attempt.running:  # of a try that was cancelled: what it does is done first
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
        # A thread cannot be stopped. If the turn is, what it does is still noted, for whoever tries again.
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
        """The call to run, the result that it was denied or cannot run, or None if it waits."""
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
        except ValueError as problem:  # nobody is asked to approve what cannot run
            return ToolResult(call.id, f"Invalid arguments for {tool.name}: {problem}", is_error=True, name=tool.name)
        return None
