"""Deciding tool calls that wait for a person.

The loop does not run a tool that requires approval: it ends with the calls in `LoopResult.pending` and everything else
in `messages`. The decision comes later, perhaps in another process, as `approvals={call_id: decision}` together with
those messages. A call that already has a result in them is never run again.
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
    """A decision on a pending call: run it (with other `input`, if given), or deny it with a `reason`.

    >>> Approval(False, reason="Too expensive").approved
    False
    """

    approved: bool
    reason: str = ""
    input: Mapping[str, Any] | None = None


Decision = Approval | bool | Mapping[str, Any]


def as_approvals(decisions: Mapping[str, Decision]) -> dict[str, Approval]:
    """Decisions in one form; one that could be misread is refused, not guessed.

    >>> as_approvals({"call_1": True, "call_2": {"approved": False, "reason": "Too expensive"}})["call_2"].reason
    'Too expensive'
    """
    if not isinstance(decisions, Mapping):
        raise InvalidArgumentError(f"approvals is a mapping of call ids to decisions, not {decisions!r:.80}.")
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
            f"a decision on call {id!r} is True, False, or Approval(approved, reason, input) with True or False,"
            f" not {decision!r:.80}."
        )
    return decision


def apply_decision(call: ToolCall, approval: Approval) -> ToolCall | ToolResult:
    """The call to run, or the result that tells the model it was denied."""
    if approval.approved:
        return call if approval.input is None else replace(call, input=approval.input, invalid_input=None)
    reason = f": {approval.reason}" if approval.reason else "."
    return ToolResult(call.id, f"The user did not allow this call{reason}", is_error=True, name=call.name)


def validate_runnable(call: ToolCall, tool: Tool | None) -> None:
    """Refuse to use up an approval on a call that cannot run: it stays as it is, and can be decided again."""
    if tool is None:
        raise ConfigurationError(
            f"Call {call.id!r} was approved, but there is no tool {call.name!r} here: pass the tools (and skills) with"
            " which the turn was begun. Nothing was run."
        )
    try:
        tool.bind(call.input)
    except ValueError as problem:
        raise InvalidArgumentError(f"call {call.id!r} cannot run with these arguments: {problem}.") from problem


def note_changed_input(result: ToolResult, original: ToolCall, executed: ToolCall) -> ToolResult:
    """A result that says with what the call ran, if that is not what the model asked for."""
    if original.input == executed.input:
        return result
    note = f"[The user approved it with other arguments: {dump_json(executed.input)}]"
    parts = None if result.parts is None else (text_part(note), *result.parts)
    return replace(result, content=f"{note}\n{result.content}", parts=parts)


def validate_decisions(approvals: Mapping[str, Approval], messages: Sequence[Message]) -> None:
    """Refuse a decision on a call that the history does not hold: it is most likely a wrong id."""
    known = {call.id for message in messages for call in message.tool_calls}
    unknown = [id for id in approvals if id not in known]
    if unknown:
        raise ConfigurationError(
            f"approvals names calls that are not in the messages: {', '.join(unknown)}."
            " Use the ids of LoopResult.pending, together with LoopResult.messages."
        )
