"""Blocks, ids, datetimes and extractive summaries."""

from __future__ import annotations

import string
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback import Message, MessagePart, ToolCall, image_part, user_message
from tellback.conversations.summary import extract_summary
from tellback.types.blocks import TextBlock, ToolResultBlock, ToolUseBlock, as_blocks, chat_messages, message_blocks
from tellback.types.ids import as_utc, from_micros, new_id, to_micros

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
OBJECT = st.dictionaries(st.text(max_size=5), JSON, max_size=3)
PARTS = st.builds(MessagePart, st.just("text"), st.text()) | st.builds(
    MessagePart, st.sampled_from(["image", "audio", "file"]), mime=st.just("a/b"), data=st.text(string.ascii_letters)
)
CALLS = st.builds(ToolCall, st.text(min_size=1), st.text(min_size=1), OBJECT, st.none() | st.text(), st.none() | OBJECT)
META = st.none() | OBJECT
MESSAGES = (
    st.builds(Message, st.sampled_from(["user", "system", "assistant"]), st.text(min_size=1), meta=META)
    | st.builds(
        Message,
        st.just("assistant"),
        st.text(min_size=1),
        tool_calls=st.lists(CALLS, max_size=3).map(tuple),
        meta=META,
    )
    | st.builds(
        Message,
        st.just("tool"),
        st.text(),
        tool_call_id=st.text(min_size=1),
        name=st.none() | st.text(min_size=1),
        is_error=st.booleans(),
        meta=META,
    )
)


@given(MESSAGES)
def test_a_stored_message_is_loaded_unchanged(message: Message) -> None:
    import json

    stored = json.loads(json.dumps([dict(block) for block in message_blocks(message)]))
    [restored] = chat_messages(message.role, as_blocks(stored), message.meta)
    assert restored == message
    assert [call.meta for call in restored.tool_calls] == [call.meta for call in message.tool_calls]
    assert [call.invalid_input for call in restored.tool_calls] == [call.invalid_input for call in message.tool_calls]


@given(st.lists(PARTS, min_size=2, max_size=4))
def test_stored_parts_are_loaded_unchanged(parts: list[MessagePart]) -> None:
    message = user_message(parts)
    assert chat_messages("user", message_blocks(message)) == [message]


def test_tool_results_beside_other_blocks_become_separate_messages() -> None:
    blocks = as_blocks(
        [
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "tool_result", "toolUseId": "b", "content": [{"type": "text", "text": "2"}], "isError": True},
            "And now?",
        ]
    )
    messages = chat_messages("user", blocks)
    assert [(m.role, m.content) for m in messages] == [("tool", "1"), ("tool", "2"), ("user", "And now?")]
    assert messages[1].is_error


def test_a_block_is_a_value_and_a_mapping() -> None:
    block = ToolUseBlock("t", "look", {"at": 1})
    assert block == {"type": "tool_use", "id": "t", "name": "look", "arguments": {"at": 1}}
    assert dict(block) == {"type": "tool_use", "id": "t", "name": "look", "arguments": {"at": 1}}
    assert "meta" not in block
    assert block.get("meta") is None
    assert len(block) == 4
    with pytest.raises(KeyError):
        _ = block["colour"]
    assert ToolResultBlock("t", "x") != TextBlock("x")
    assert as_blocks(image_part(data=b"x", mime="image/png"))[0]["mime_type"] == "image/png"


def test_ids_increase_within_a_process_and_across_threads() -> None:
    found: list[str] = []

    def make() -> None:
        found.extend([new_id("msg") for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8_000
    thread_ids = [new_id("msg") for _ in range(1_000)]
    assert thread_ids == sorted(thread_ids)
    assert max(found) < thread_ids[0]


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5.5))])))
def test_datetimes_are_exact_to_the_microsecond(moment: datetime) -> None:
    try:
        utc = as_utc(moment)
    except OverflowError:
        return
    assert from_micros(to_micros(utc)) == moment
    assert as_utc(moment.isoformat()) == moment


@pytest.mark.parametrize("value", [datetime(2024, 1, 1), "2024-01-01", "2024-01-01T00:00:00", "soon", 7, None])
def test_a_datetime_without_a_timezone_is_rejected(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        as_utc(value)


SPOKEN_MESSAGES = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=200)), max_size=12
)


@given(SPOKEN_MESSAGES, SPOKEN_MESSAGES, st.integers(min_value=20, max_value=400))
def test_an_extractive_summary_is_short_and_quotes_the_messages(first: Any, second: Any, limit: int) -> None:
    summary = extract_summary(None, first, limit)
    merged = extract_summary(summary, second, limit)
    assert len(merged) <= limit
    assert merged == extract_summary(summary, second, limit)
    text = " ".join(" ".join(text.split()) for _, text in (*first, *second))
    for line in merged.splitlines():
        speaker, _, sentence = line.partition(": ")
        assert speaker in ("user", "assistant", "tool")
        assert sentence.removesuffix("…") in text


def test_an_extractive_summary_prefers_facts_to_small_talk() -> None:
    messages = [
        ("user", "Hi there! How are you? I am allergic to peanuts since 2019."),
        ("assistant", "Hello! I am fine, thank you. What can I do for you?"),
        ("user", "My budget for Rome is 900 euros. Ok? Thanks!"),
        ("assistant", "Sure."),
    ]
    assert extract_summary(None, messages, 100).splitlines() == [
        "user: I am allergic to peanuts since 2019.",
        "user: My budget for Rome is 900 euros.",
    ]
