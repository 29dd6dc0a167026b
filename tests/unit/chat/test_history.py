"""Repaired histories are valid for every provider, and no message is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tellback.chat.history import INTERRUPTED, is_valid_history, pending_calls, repair_history
from tellback.types import (
    Message,
    ToolCall,
    ToolResult,
    assistant_message,
    message_text,
    tool_result_message,
    user_message,
)


def call_message(*ids: str) -> Message:
    return assistant_message("", [ToolCall(id, "look") for id in ids])


def result_message(id: str, content: str = "ok") -> Message:
    return tool_result_message(ToolResult(id, content, name="look"))


def outline(messages: list[Message]) -> list[str]:
    marks = {"user": "u", "assistant": "a", "tool": "t"}
    return [
        marks[m.role] + (m.tool_call_id or "".join(c.id for c in m.tool_calls)) + ("!" if m.is_error else "")
        for m in messages
    ]


def test_a_valid_history_is_unchanged() -> None:
    history = [
        user_message("Hi"),
        call_message("1", "2"),
        result_message("2"),
        result_message("1"),
        assistant_message("Done"),
    ]
    assert repair_history(history) == history


def test_a_missing_result_becomes_an_error_result() -> None:
    repaired = repair_history([user_message("Hi"), call_message("1", "2"), result_message("1"), user_message("?")])
    assert outline(repaired) == ["u", "a12", "t1", "t2!", "u"]
    assert repaired[3].content == INTERRUPTED
    assert repaired[3].name == "look"


def test_a_late_result_is_moved_to_its_call() -> None:
    repaired = repair_history([call_message("1"), user_message("?"), result_message("1", "late")])
    assert outline(repaired) == ["a1", "t1", "u"]
    assert repaired[1].content == "late"


def test_a_second_result_is_dropped_and_a_result_without_a_call_becomes_a_note() -> None:
    repaired = repair_history(
        [result_message("0", "old"), call_message("1"), result_message("1", "first"), result_message("1", "second")]
    )
    assert outline(repaired) == ["u", "a1", "t1"]
    assert "old" in repaired[0].content
    assert repaired[2].content == "first"


def test_a_result_with_a_repeated_id_belongs_to_the_nearest_call() -> None:
    history = [call_message("1"), user_message("?"), call_message("1"), result_message("1", "second")]
    repaired = repair_history(history)
    assert outline(repaired) == ["a1", "t1!", "u", "a1", "t1"]
    assert repaired[-1].content == "second"


def test_calls_with_equal_ids_in_one_reply_are_one_call() -> None:
    assert outline(repair_history([call_message("1", "1"), result_message("1")])) == ["a1", "t1"]


def test_only_calls_at_the_end_are_pending() -> None:
    assert [c.id for c in pending_calls([call_message("1", "2"), result_message("1")])] == ["2"]
    assert pending_calls([call_message("1"), user_message("?")]) == ()
    assert pending_calls([]) == ()


ids = st.sampled_from(["1", "2", "3"])
messages = st.one_of(
    st.text(max_size=3).map(user_message),
    st.text(max_size=3).map(assistant_message),
    st.lists(ids, min_size=1, max_size=3).map(lambda found: call_message(*found)),
    st.tuples(ids, st.uuids()).map(lambda pair: result_message(pair[0], str(pair[1]))),
)


@given(st.lists(messages, max_size=12))
def test_a_repaired_history_is_valid_and_repairing_it_again_changes_nothing(history: list[Message]) -> None:
    repaired = repair_history(history)
    assert is_valid_history(repaired)
    assert repair_history(repaired) == repaired


@given(st.lists(messages, max_size=12))
def test_messages_of_users_and_models_keep_their_order(history: list[Message]) -> None:
    def user_texts(found: list[Message]) -> list[str]:
        return [message_text(m) for m in found if m.role != "tool" and not message_text(m).startswith("[Result of")]

    assert user_texts(repair_history(history)) == user_texts(history)


@given(st.lists(messages, max_size=12))
def test_no_result_is_lost_unless_its_call_has_another(history: list[Message]) -> None:
    repaired = "".join(map(message_text, repair_history(history)))
    called = {c.id for m in history for c in m.tool_calls}
    for message in history:
        if message.role == "tool" and message.tool_call_id not in called:
            assert message_text(message) in repaired
