"""Deciding tool calls that wait for a person.

The loop does not run a tool that requires approval: it ends with the calls in `LoopResult.pending` and everything else
in `messages`. The decision comes later, perhaps in another process, as `approvals={call_id: decision}` together with
those messages. A call that already has a result in them is never run again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.errors import ConfigurationError
from recollect.types import Message, ToolCall, ToolResult


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


def decided(call: ToolCall, decision: Decision) -> ToolCall | ToolResult:
    """The call to run, or the result that tells the model it was denied."""
    if isinstance(decision, bool):
        approval = Approval(decision)
    else:
        approval = Approval(**decision) if isinstance(decision, Mapping) else decision
    if approval.approved:
        return call if approval.input is None else replace(call, input=approval.input, invalid_input=None)
    reason = f": {approval.reason}" if approval.reason else "."
    return ToolResult(call.id, f"The user did not allow this call{reason}", is_error=True, name=call.name)


def check_decisions(approvals: Mapping[str, Decision], messages: Sequence[Message]) -> None:
    """Refuse a decision on a call that the history does not hold: it is most likely a wrong id."""
    known = {call.id for message in messages for call in message.tool_calls}
    unknown = [id for id in approvals if id not in known]
    if unknown:
        raise ConfigurationError(
            f"approvals names calls that are not in the messages: {', '.join(unknown)}."
            " Use the ids of LoopResult.pending, together with LoopResult.messages."
        )
