"""Which messages of a request are new to the log."""

from __future__ import annotations

import tracemalloc
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tellback.server.openai.completion import LogTail
from tellback.types import Message, ToolCall
from tellback.types.blocks import message_blocks
from tellback.types.conversations import StoredMessage
from tellback.types.ids import utc_now

WORDS = st.text(st.sampled_from("ab\n"), max_size=3)


def make_log(*messages: Message) -> list[StoredMessage]:
    return [
        StoredMessage(
            f"m{seq}", "c", seq, "t", message.role, message_blocks(message), utc_now(), idempotency_key=f"k{seq}"
        )
        for seq, message in enumerate(messages, 1)
    ]


def user_entry(text: str) -> Message:
    return Message("user", text)


def assistant_entry(text: str, *calls: str) -> Message:
    return Message("assistant", text, tool_calls=tuple(ToolCall(id, "look") for id in calls))


def tool_entry(id: str, text: str = "found") -> Message:
    return Message("tool", text, tool_call_id=id, name="look")


def test_an_unanswered_repeated_text_is_the_stored_message() -> None:
    fresh = LogTail(make_log(user_entry("a"), assistant_entry("b"), user_entry("c"))).find_unlogged(["c"])
    assert (fresh.texts, fresh.key) == ((), "k3")


def test_a_repeated_text_after_an_answer_is_new() -> None:
    before, after = LogTail(make_log(user_entry("a"))), LogTail(make_log(user_entry("a"), assistant_entry("b")))
    assert before.find_unlogged(["a"]).key == "k1"
    assert after.find_unlogged(["a"]).texts == ("a",)
    assert after.find_unlogged(["a"]).key not in ("k1", LogTail([]).find_unlogged(["a"]).key)


def test_texts_stored_before_a_failure_are_not_stored_again() -> None:
    assert LogTail(make_log(assistant_entry("x"), user_entry("a"))).find_unlogged(["a", "b", "c"]).texts == ("b", "c")
    assert LogTail(make_log(user_entry("old"), user_entry("a"))).find_unlogged(["a", "b"]).texts == ("b",)
    assert LogTail(make_log(user_entry("old"))).find_unlogged(["a"]).texts == ("a",)


def test_concurrent_equal_requests_have_the_same_key() -> None:
    stored = make_log(user_entry("a"), assistant_entry("b"))
    assert LogTail(stored).find_unlogged(["c"]) == LogTail(stored).find_unlogged(["c"])
    assert LogTail(stored).find_unlogged(["c"]).key != LogTail(stored).find_unlogged(["d"]).key


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_all_sent_texts_are_logged_exactly_once(before: list[str], texts: list[str]) -> None:
    fresh = LogTail(make_log(assistant_entry("x"), *map(user_entry, before))).find_unlogged(texts)
    stored = [*before, "\n\n".join(fresh.texts)] if fresh.texts else before
    tails = ["\n\n".join(stored[start:]) for start in range(len(stored))]
    assert "\n\n".join(texts) in tails, "the log ends with all texts, once"


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_a_repeated_request_adds_no_message(before: list[str], texts: list[str]) -> None:
    first = LogTail(make_log(*map(user_entry, before))).find_unlogged(texts)
    then = [*before, "\n\n".join(first.texts)] if first.texts else before
    assert LogTail(make_log(*map(user_entry, then))).find_unlogged(texts).texts == ()


def test_comparing_with_a_long_log_needs_little_memory() -> None:
    end = LogTail(make_log(*(user_entry(str(number) * 50_000) for number in range(10, 60))))
    tracemalloc.start()
    try:
        assert end.find_unlogged(["a", "b"]).texts == ("a", "b")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_tool_results_are_stored_once() -> None:
    entries = [user_entry("a"), assistant_entry("", "c1", "c2")]
    results: list[Any] = [tool_entry("c1"), tool_entry("c2")]
    assert [
        each["content"][0]["tool_use_id"] for each in LogTail(make_log(*entries)).find_missing_results(results)
    ] == [
        "c1",
        "c2",
    ]
    assert [
        each["content"][0]["tool_use_id"]
        for each in LogTail(make_log(*entries, tool_entry("c1"))).find_missing_results(results)
    ] == ["c2"]
    assert (
        LogTail(make_log(*entries, tool_entry("c1"), tool_entry("c2"), assistant_entry("b"))).find_missing_results(
            results
        )
        == []
    )


def test_a_reused_call_id_means_another_call() -> None:
    entries = make_log(
        user_entry("a"),
        assistant_entry("", "c1"),
        tool_entry("c1"),
        assistant_entry("b"),
        user_entry("c"),
        assistant_entry("", "c1"),
    )
    assert len(LogTail(entries).find_missing_results([tool_entry("c1")])) == 1


def test_results_of_unknown_calls_are_stored_once() -> None:
    [draft] = LogTail(make_log(assistant_entry("x"))).find_missing_results([tool_entry("z")])
    assert draft["content"][0]["content"] == "found"
    assert LogTail(make_log(assistant_entry("x"), tool_entry("z"))).find_missing_results([tool_entry("z")]) == []


def test_an_answer_stored_in_the_meantime_is_found() -> None:
    entries = [user_entry("a"), assistant_entry("", "c1"), tool_entry("c1")]
    before = LogTail(make_log(*entries[:2]))
    assert LogTail(make_log(*entries)).answer_since(before) is None
    assert LogTail(make_log(*entries, assistant_entry("b"))).answer_since(before) == "b"
    assert LogTail(make_log(*entries, assistant_entry("", "c2"))).answer_since(before) is None
    assert (
        LogTail(make_log(*entries, assistant_entry("b"))).answer_since(
            LogTail(make_log(*entries, assistant_entry("b")))
        )
        is None
    )
