"""Decide on tool calls that need a person's approval.

The loop does not run a tool that requires approval: it ends with the calls in `LoopResult.pending` and the history in
`LoopResult.messages`. A later run, perhaps in another process, gets the decision as `approvals={call_id: decision}`
with these messages. A call that already has a result is never run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.tools import Tool
from tellback.types import Message, ToolCall, ToolResult, text_part
from tellback.types.jsontext import dump_json


@dataclass(frozen=True, slots=True)
class Approval:
    """A decision on a pending call: run it (with other `input`, if set), or deny it with a `reason`.

    >>> Approval(False, reason="Too expensive").approved
    False
    """

    approved: bool
    reason: str = ""
    input: Mapping[str, Any] | None = None


Decision = Approval | bool | Mapping[str, Any]


def as_approvals(decisions: Mapping[str, Decision]) -> dict[str, Approval]:
    """Convert decisions to `Approval`s; an ambiguous decision raises `InvalidArgumentError`.

    >>> as_approvals({"call_1": True, "call_2": {"approved": False, "reason": "Too expensive"}})["call_2"].reason
    'Too expensive'
    """
    if not isinstance(decisions, Mapping):
        raise InvalidArgumentError(f"approvals must be a mapping of call ids to decisions, got {decisions!r:.80}.")
    return {id: _parse_decision(id, decision) for id, decision in decisions.items()}


def _parse_decision(id: str, decision: Any) -> Approval:
    if isinstance(decision, bool):
        return Approval(decision)
    if isinstance(decision, Mapping) and "approved" in decision and set(decision) <= {"approved", "reason", "input"}:
        decision = Approval(**decision)
    if (
        not isinstance(decision, Approval)
        or not isinstance(decision.approved, bool)
        or not isinstance(decision.reason, str)
        or not isinstance(decision.input, Mapping | None)
    ):
        raise InvalidArgumentError(
            f"The decision on call {id!r} must be True, False or Approval(approved, reason, input),"
            f" got {decision!r:.80}."
        )
    return decision


def apply_decision(call: ToolCall, approval: Approval) -> ToolCall | ToolResult:
    """Return the call to run, or the result that reports the denial to the model."""
    if approval.approved:
        return call if approval.input is None else replace(call, input=approval.input, invalid_input=None)
    reason = f": {approval.reason}" if approval.reason else "."
    return ToolResult(call.id, f"The user did not allow this call{reason}", is_error=True, name=call.name)


def validate_runnable(call: ToolCall, tool: Tool | None) -> None:
    """Raise an error if an approved call cannot run, so that it stays pending and can be decided again."""
    if tool is None:
        raise ConfigurationError(
            f"Call {call.id!r} was approved, but this run has no tool {call.name!r}: pass the tools and skills with"
            " which the turn began. No call was run."
        )
    try:
        tool.bind(call.input)
    except ValueError as problem:
        raise InvalidArgumentError(f"Call {call.id!r} cannot run with these arguments: {problem}.") from problem


def note_changed_input(result: ToolResult, original: ToolCall, executed: ToolCall) -> ToolResult:
    """Add a note to the result if the call ran with other arguments than the model requested."""
    if original.input == executed.input:
        return result
    note = f"[The user approved it with other arguments: {dump_json(executed.input)}]"
    parts = None if result.parts is None else (text_part(note), *result.parts)
    return replace(result, content=f"{note}\n{result.content}", parts=parts)


def validate_decisions(approvals: Mapping[str, Approval], messages: Sequence[Message]) -> None:
    """Raise `InvalidArgumentError` for a decision on a call that is not in the history."""
    known = {call.id for message in messages for call in message.tool_calls}
    unknown = [id for id in approvals if id not in known]
    if unknown:
        raise InvalidArgumentError(
            f"approvals contains calls that are not in the messages: {', '.join(unknown)}. Use the ids of the result's"
            " pending calls. In the model loop, pass them together with the messages of the same result."
        )
