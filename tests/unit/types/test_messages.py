"""Messages and parts are values: frozen, equal by content."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from tellback import (
    ChatReply,
    Message,
    MessagePart,
    StreamStop,
    ToolCall,
    ToolResult,
    assistant_message,
    file_part,
    image_part,
    message_text,
    text_part,
    tool_result_message,
    user_message,
)
from tellback.chat import ReplyBuilder, flatten_parts
from tellback.errors import (
    BudgetExceededError,
    MaxIterationsError,
    MissingExtraError,
    MissingKeyError,
    OutputValidationError,
    ProviderRateLimitError,
    UnknownModelError,
)
from tellback.types import as_message, audio_part, reply_deltas


def test_values_are_frozen_and_equal_by_content() -> None:
    one, two = user_message("Hi"), Message(role="user", content="Hi")
    assert one == two
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.content = "x"  # type: ignore[misc]
    signed = assistant_message("Hi", [ToolCall("c", "f", {"x": 1})], meta={"anthropic": {"content": []}})
    assert signed == assistant_message("Hi", [ToolCall("c", "f", {"x": 1})])


def test_lists_are_converted_to_tuples() -> None:
    message = Message("assistant", "", parts=[text_part("a")], tool_calls=[ToolCall("c", "f")])  # type: ignore[arg-type]
    assert message.parts == (text_part("a"),)
    assert message.tool_calls == (ToolCall("c", "f"),)
    assert Message("assistant", tool_calls=None).tool_calls == ()  # type: ignore[arg-type]
    assert ChatReply(text=None, tool_calls=None) == ChatReply()  # type: ignore[arg-type]


def test_parts_flatten_to_text_and_placeholders() -> None:
    parts = [
        text_part("Look:"),
        image_part(url="https://example.com/cat.png"),
        audio_part(data=b"x", mime="audio/mp3"),
        file_part(data=b"x", mime="application/pdf", name="bill.pdf"),
        MessagePart("image", text="a caption"),
        MessagePart("tool-result", text="42"),
        text_part(""),
        text_part("Done."),
    ]
    assert flatten_parts(parts) == (
        "Look:\n\n[image: https://example.com/cat.png]\n\n[audio: audio/mp3]\n\n[file: bill.pdf]"
        "\n\n[image] a caption\n\n[tool-result] 42\n\nDone."
    )
    assert flatten_parts([]) == ""
    assert user_message(parts).content == flatten_parts(parts)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (user_message("Hi"), "Hi"),
        (Message("user", "fallback", parts=(text_part("a"), text_part("b"))), "a\n\nb"),
        (Message("tool", {"x": "ü"}), '{"x": "ü"}'),
        (Message("assistant", None), ""),
    ],
)
def test_message_text_reads_parts_and_content(message: Message, text: str) -> None:
    assert message_text(message) == text


@pytest.mark.parametrize("arguments", [{}, {"url": "u", "data": b"x", "mime": "image/png"}, {"data": b"x"}])
def test_an_image_needs_one_source_and_data_needs_a_mime_type(arguments: Any) -> None:
    with pytest.raises(ValueError, match="image_part"):
        image_part(**arguments)


def test_media_parts_reject_fields_of_other_parts() -> None:
    fields: Any = {"url": "https://example.com/a.png", "text": "a cat"}
    with pytest.raises(TypeError, match="text"):
        image_part(**fields)


def test_a_data_url_is_data_and_never_text() -> None:
    part = image_part(url="data:image/gif;base64,R0lG")
    assert (part.mime, part.data, part.url) == ("image/gif", "R0lG", None)
    assert audio_part(url="data:audio/mp3,a%20b").data == "YSBi"
    assert flatten_parts([MessagePart("image", url="data:image/gif;base64,R0lG")]) == "[image]"


def test_messages_may_be_mappings() -> None:
    found = as_message(
        {
            "role": "assistant",
            "content": "",
            "parts": [{"kind": "text", "text": "Hi"}],
            "tool_calls": [{"id": "c", "name": "f", "input": {"x": 1}}],
        }
    )
    assert found == Message("assistant", "", (text_part("Hi"),), (ToolCall("c", "f", {"x": 1}),))
    with pytest.raises(TypeError, match="needs a 'role'"):
        as_message({"content": "Hi"})
    with pytest.raises(TypeError, match="no field text"):
        as_message({"role": "user", "text": "Hi"})
    with pytest.raises(TypeError, match="a mapping with 'role'"):
        as_message("Hi")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error",
    [
        UnknownModelError("x", ["y"]),
        MissingKeyError("P", ["KEY"]),
        MissingExtraError("p", "e", "It"),
        BudgetExceededError({"messages": 3}, 3, 2),
        MaxIterationsError(3, [user_message("Hi")]),
        OutputValidationError("City", "no", "text", []),
        ProviderRateLimitError("slow", status=429, retry_after=3),
    ],
)
def test_errors_can_be_pickled(error: Exception) -> None:
    restored = pickle.loads(pickle.dumps(error))
    assert type(restored) is type(error)
    assert str(restored) == str(error)
    assert vars(restored) == vars(error)


def test_a_tool_result_message_has_the_id_of_its_call() -> None:
    message = tool_result_message(ToolResult("c1", "no", is_error=True, name="f"))
    assert message == Message("tool", "no", tool_call_id="c1", name="f", is_error=True)


@pytest.mark.parametrize(
    "reply",
    [
        ChatReply(text="Hello", thinking="Hmm."),
        ChatReply(tool_calls=(ToolCall("a", "f", {"x": 1}), ToolCall("b", "g")), stop_reason="tool_use"),
        ChatReply(tool_calls=(ToolCall("a", "f", {}, invalid_input='{"x'),), stop_reason="tool_use"),
    ],
)
def test_a_reply_split_into_deltas_can_be_reassembled(reply: ChatReply) -> None:
    builder = ReplyBuilder()
    for delta in reply_deltas(reply):
        if isinstance(delta, StreamStop):
            delta = StreamStop(delta.reason, delta.usage)
        builder.add(delta)
    builder.add(object())
    assert builder.reply() == reply
    assert [c.invalid_input for c in builder.reply().tool_calls] == [c.invalid_input for c in reply.tool_calls]
