"""Histories that every provider accepts: each tool call followed by exactly one result, no result without a call.

A crash between a call and its result would otherwise make a conversation unusable for good, since providers
refuse such a history on every later request.
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
    "No result was recorded: the call waited for a person's approval, and the conversation went on without it. "
    "It has most likely not run; ask before you repeat it."
)

_role, _tool_calls = attrgetter("role"), attrgetter("tool_calls")


def repair_history(
    messages: Sequence[Message], unanswered: Callable[[ToolCall], str] = lambda _: INTERRUPTED
) -> list[Message]:
    """The same conversation with its tool calls and results paired; unchanged when it is sound.

    A call without a result gets an error result that says so, in the words of `unanswered`. A result that comes late is
    moved to its call; a second result for one call is dropped; a result whose call is gone becomes a note from the
    user, so that nothing is lost.

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
    """Whether every call has its one result right after it, and every result its call."""
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
    """The calls at the end of a history that have no result yet, if nothing but results and notes follow them."""
    answered: set[str | None] = set()
    for message in reversed(messages):
        if message.role == "tool":
            answered.add(message.tool_call_id)
        if message.role in ("tool", "system"):
            continue
        return tuple(call for call in message.tool_calls if call.id not in answered)
    return ()


def build_interrupted_result(call: ToolCall, text: str = INTERRUPTED) -> Message:
    """The result that stands in for one that was never recorded."""
    return tool_result_message(ToolResult(call.id, text, is_error=True, name=call.name))


def _find_result(call: ToolCall, messages: Sequence[Message], start: int, used: set[int]) -> int | None:
    for index in range(start + 1, len(messages)):
        message = messages[index]
        if message.role == "tool" and message.tool_call_id == call.id and index not in used:
            return index
        if any(other.id == call.id for other in message.tool_calls):
            return None  # the same id again: later results belong to that call
    return None


def _orphan_result_note(result: Message, before: Sequence[Message]) -> Message | None:
    if any(call.id == result.tool_call_id for message in before for call in message.tool_calls):
        return None  # a second result for a call that has one
    return user_message(f"[Result of an earlier tool call {result.tool_call_id}: {message_text(result)}]")


def _drop_duplicate_calls(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    by_id = {call.id: call for call in reversed(calls)}
    return calls if len(by_id) == len(calls) else tuple(reversed(by_id.values()))
