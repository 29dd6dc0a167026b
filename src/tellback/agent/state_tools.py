"""The tools of states, run for a turn: with a person's consent where they need it, and never twice for one try."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from tellback.agent.moves import Ran, RunTool
from tellback.agent.session import ToolRun, WaitingCall
from tellback.agent.tries import Done
from tellback.chat.approval import Approval, decided
from tellback.conversations.turn_requests import TurnLog
from tellback.tools import Tool, dispatch
from tellback.tools.context import ToolUpdate
from tellback.types import ToolCall, ToolResult
from tellback.types.conversations import ToolInvocation
from tellback.types.ids import new_id
from tellback.types.jsontext import dump_json

UNKNOWN = "It was approved and begun before, and nobody knows whether it took effect. It is not begun again."


class StateTools:
    """Runs tools. `invoked` are the calls so far, in order."""

    def __init__(self, done: Done, approvals: Mapping[str, Approval]) -> None:
        self.invoked: list[ToolInvocation] = []
        self.log: TurnLog | None = None
        self._done = done
        self._approvals = approvals
        self._updates: list[ToolUpdate] = []

    def take(self, update: ToolUpdate) -> None:
        """Take what a tool gives back besides its result."""
        self._updates.append(update)

    def has_run(self, call: ToolCall) -> bool:
        """Whether a call that waits was approved and run in a first try of this turn."""
        return call.id in self._done.runs

    async def run(self, wanted: RunTool) -> Ran:
        """Run the tool of a state, unless a person must decide first, or it ran in a first try."""
        state, tool = wanted.state, wanted.state.tool
        assert tool is not None
        waiting = next((each.call for each in wanted.session.waiting if each.state_id == state.id), None)
        if state.id in self._done.running:  # of a try that was cancelled: what it does is done first
            await asyncio.wait([self._done.running[state.id]])
        earlier = None if waiting is None else self._done.runs.get(waiting.id)
        if earlier is None and not state.repeat:
            earlier = self._done.states.get(state.id)
        if earlier is not None:
            return self._gave(earlier)
        call = ToolCall(new_id("call"), tool.name, wanted.arguments)
        key = dump_json([state.id, call.input])
        if tool.requires_approval:
            outcome = await self._decided(waiting, call, tool)
            if outcome is None:
                return Ran(ToolRun(tool.name, call.input), waiting=WaitingCall(state.id, call))
            if isinstance(outcome, ToolResult):
                refused = ToolRun(tool.name, call.input, error=outcome.content)
                self.invoked.append(ToolInvocation(call.id, call.name, call.input, outcome.content, is_error=True))
                return Ran(refused)
            call = outcome
            key = call.id
        elif key in self._done.runs:
            return self._gave(self._done.runs[key])
        return self._gave(await self._dispatched(state.id, key, call, tool))

    def _gave(self, done: tuple[Ran, ToolInvocation]) -> Ran:
        ran, invocation = done
        self.invoked.append(invocation)
        return ran

    async def _dispatched(self, state_id: str, key: str, call: ToolCall, tool: Tool) -> tuple[Ran, ToolInvocation]:
        async def run() -> tuple[Ran, ToolInvocation]:
            result = await dispatch(call, {tool.name: tool})
            made = self._made(call, result)
            if not result.is_error or tool.requires_approval:
                self._done.runs[key] = self._done.states[state_id] = made
            return made

        if tool.is_async:
            return await run()
        # A thread cannot be stopped. If the turn is, what it does is still noted, for whoever tries again.
        running = self._done.running[state_id] = asyncio.ensure_future(run())
        running.add_done_callback(lambda _: self._done.running.pop(state_id, None))
        return await asyncio.shield(running)

    def _made(self, call: ToolCall, result: ToolResult) -> tuple[Ran, ToolInvocation]:
        updates, self._updates = self._updates, []
        invocation = ToolInvocation(call.id, call.name, call.input, result.content, result.is_error)
        run = ToolRun(call.name, dict(call.input), result.content)
        if result.is_error:
            return Ran(replace(run, content="", error=result.content)), invocation
        data = {name: value for update in updates for name, value in update.data.items()}
        context = {name: value for update in updates for name, value in update.context.items()}
        return Ran(run, result.value, data, context), invocation

    async def _decided(self, waiting: ToolCall | None, call: ToolCall, tool: Tool) -> ToolCall | ToolResult | None:
        """The call to run, the result that it was denied or cannot run, or None if it waits."""
        approval = None if waiting is None else self._approvals.get(waiting.id)
        if waiting is not None and approval is not None:
            outcome = decided(waiting, approval)
            if isinstance(outcome, ToolCall) and self.log is not None and not await self.log.begins(outcome):
                return ToolResult(call.id, UNKNOWN, is_error=True, name=tool.name)
            return outcome
        try:
            tool.bind(call.input)
        except ValueError as problem:  # nobody is asked to approve what cannot run
            return ToolResult(call.id, f"Invalid arguments for {tool.name}: {problem}", is_error=True, name=tool.name)
        return None
