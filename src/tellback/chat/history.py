"""Repair histories so that each tool call is followed by exactly one result, and each result has a call.

Providers reject any other history. Without the repair, a crash between a call and its result would make the
conversation unusable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from tellback.types import Message, ToolCall, ToolResult, message_text, tool_result_message, user_message

INTERRUPTED = (
    "No result was recorded: the run was interrupted. The call may or may not have taken effect; "
    "check before you repeat it."
)

UNDECIDED = (
    "No result was recorded: the call waited for a person's approval, and the conversation continued without it. "
    "It has most likely not run; ask before you repeat it."
)

_role, _tool_calls = attrgetter("role"), attrgetter("tool_calls")


def repair_history(
    messages: Sequence[Message], unanswered: Callable[[ToolCall], str] = lambda _: INTERRUPTED
) -> list[Message]:
    """Return the messages with tool calls and results paired; a valid history stays unchanged.

    A call without a result gets an error result with the text of `unanswered`. A late result is moved to its call. A
    second result for a call is dropped. A result without a call becomes a note from the user, so that it is not lost.

    >>> from tellback.types import assistant_message
    >>> broken = [user_message("Hi"), assistant_message("", [ToolCall("c1", "look")]), user_message("Well?")]
    >>> [m.role for m in repair_history(broken)]
    ['user', 'assistant', 'tool', 'user']
    """
    if is_valid_history(messages):
        return list(messages)
    repaired: list[Message] = []
    used: set[int] = set()
    for index, message in enumerate(messages):
        if index in used:
            continue
        if message.role == "tool":
            note = _orphan_result_note(message, messages[:index])
            if note is not None:
                repaired.append(note)
            continue
        calls = _drop_duplicate_calls(message.tool_calls)
        if message.role == "assistant" and calls != message.tool_calls:
            message = replace(message, tool_calls=calls)
        repaired.append(message)
        if message.role != "assistant":
            continue
        for call in calls:
            result_index = _find_result(call, messages, index, used)
            if result_index is None:
                repaired.append(build_interrupted_result(call, unanswered(call)))
            else:
                used.add(result_index)
                repaired.append(messages[result_index])
    return repaired


def is_valid_history(messages: Sequence[Message]) -> bool:
    """Whether each call is followed directly by its one result, and each result has a call."""
    if "tool" not in map(_role, messages) and not any(map(_tool_calls, messages)):
        return True
    pending_ids: set[str | None] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in pending_ids:
                return False
            pending_ids.discard(message.tool_call_id)
            continue
        if pending_ids:
            return False
        if message.tool_calls:
            pending_ids = {call.id for call in message.tool_calls}
            if len(pending_ids) != len(message.tool_calls):
                return False
    return not pending_ids


def pending_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the last reply's calls without a result, if only results and system messages follow that reply."""
    answered: set[str | None] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.tool_call_id)
        if message.role in ("tool", "system"):
            continue
        return tuple(call for call in message.tool_calls if call.id not in answered)
    return ()


def build_interrupted_result(call: ToolCall, text: str = INTERRUPTED) -> Message:
    """Build the replacement for a result that was not recorded."""
    return tool_result_message(ToolResult(call.id, text, is_error=True, name=call.name))


def _find_result(call: ToolCall, messages: Sequence[Message], start: int, used: set[int]) -> int | None:
    for index in range(start + 1, len(messages)):
        message = messages[index]
        if message.role == "tool" and message.tool_call_id == call.id and index not in used:
            return index
        if any(other.id == call.id for other in message.tool_calls):
            return None  # a later call has the same id; later results belong to that call
    return None


def _orphan_result_note(result: Message, before: Sequence[Message]) -> Message | None:
    if any(call.id == result.tool_call_id for message in before for call in message.tool_calls):
        return None  # a second result for a call
    return user_message(f"[Result of an earlier tool call {result.tool_call_id}: {message_text(result)}]")


def _drop_duplicate_calls(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    by_id = {call.id: call for call in reversed(calls)}
    return calls if len(by_id) == len(calls) else tuple(reversed(by_id.values()))
