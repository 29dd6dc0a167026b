"""Tools that run where the client is: the server tells which calls it wants, and is given what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellback.chat.approval import Approval, apply_decision, as_approvals, note_changed_input, validate_runnable
from tellback.chat.model import ToolEntry
from tellback.client.values import encode_content
from tellback.tools import Tool, tools_by_name
from tellback.tools.dispatch import dispatch_all
from tellback.types import ToolCall, ToolResult


class LocalTools:
    """The tools of a turn, and what a person has decided on their calls."""

    def __init__(self, tools: Sequence[ToolEntry] | None, approvals: Mapping[str, Any] | None) -> None:
        self._tools = tools_by_name(tools or ())
        self._decisions = {} if approvals is None else as_approvals(approvals)

    def encode_descriptions(self) -> list[dict[str, Any]] | None:
        """What the server is told of them."""
        descriptions = [
            {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
            for tool in self._tools.values()
        ]
        return descriptions or None

    def encode_remaining_decisions(self) -> dict[str, Any]:
        """Decisions on calls that do not wait, or not for our tools: the server says what is wrong with them."""
        return {
            id: {"approved": each.approved, "reason": each.reason, "input": each.input}
            for id, each in self._decisions.items()
        }

    async def run_pending(self, pending: Sequence[ToolCall]) -> list[dict[str, Any]]:
        """What came of the calls that may run now, or that were refused; none if all of them wait for a person."""
        ready = [call for call in pending if self._may_run(call)]
        approved: list[ToolCall] = []
        refused: list[ToolResult] = []
        for call in ready:
            decision = apply_decision(call, self._decisions.pop(call.id, Approval(True)))
            if isinstance(decision, ToolResult):
                refused.append(decision)
            else:
                if decision is not call:
                    validate_runnable(decision, self._tools.get(call.name))
                approved.append(decision)
        dispatched = await dispatch_all(approved, self._tools)
        originals = {call.id: call for call in ready}
        completed = [
            note_changed_input(result, originals[call.id], call)
            for call, result in zip(approved, dispatched, strict=True)
        ]
        return [_encode_result(result) for result in (*completed, *refused)]

    def _may_run(self, call: ToolCall) -> bool:
        tool: Tool | None = self._tools.get(call.name)
        return tool is not None and (call.id in self._decisions or not tool.requires_approval)


def _encode_result(result: ToolResult) -> dict[str, Any]:
    """What a tool gave: its text, or all its parts where it gave more than that."""
    content = result.content if result.parts is None else encode_content(result.parts)
    return {"toolUseId": result.id, "content": content, "isError": result.is_error}
