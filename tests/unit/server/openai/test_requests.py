"""A client's messages, read."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.server.openai.errors import InvalidFieldError
from tellback.server.openai.requests import ChatMessage, ParsedChat, parse_messages, text_of_parts

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"it"}'}}


def read(*messages: dict[str, Any]) -> ParsedChat:
    return parse_messages([ChatMessage.model_validate(message) for message in messages])


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_instructions_before_the_chat_are_the_system_prompt() -> None:
    chat = read(
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        user("Hi"),
        {"role": "system", "content": "It is late."},
    )
    assert chat.system == "Be kind.\n\nBe brief."
    assert [(each.role, each.content) for each in chat.messages] == [("user", "Hi"), ("system", "It is late.")]
    assert [each.role for each in chat.new] == ["user"]


def test_what_follows_the_last_answer_is_new() -> None:
    chat = read(
        user("one"),
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        user("two"),
    )
    assert [each.role for each in chat.new] == ["tool", "user"]
    assert chat.tool_results[0].name == "look"
    assert chat.messages[1].tool_calls[0].input == {"at": "it"}
    assert [text_of_parts(each) for each in chat.user_messages] == ["two"]
    assert chat.last_user_text == "two"
    assert chat.has_history


def test_an_answer_at_the_end_leaves_nothing_new() -> None:
    chat = read(user("Say yes"), {"role": "assistant", "content": "Y"})
    assert chat.new == ()
    assert chat.last_user_text == "Say yes"


def test_parts_become_what_models_take() -> None:
    data = base64.b64encode(b"bytes").decode()
    [said] = read(
        user(
            [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{data}"}},
                {"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}},
                {"type": "file", "file": {"file_data": f"data:text/plain;base64,{data}", "filename": "a.txt"}},
                {"type": "file", "file": {"file_data": data}},
            ]
        )
    ).user_messages
    assert said.parts is not None
    assert [(part.kind, part.mime, part.name) for part in said.parts] == [
        ("text", None, None),
        ("image", "image/gif", None),
        ("audio", "audio/mpeg", None),
        ("file", "text/plain", "a.txt"),
        ("file", "application/pdf", None),
    ]
    assert text_of_parts(said) == "Look:"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "wizard", "content": "Hi"}, "messages.0.role"),
        ({"role": "function", "name": "f", "content": "Hi"}, "messages.0.role"),
        ({"role": "tool", "content": "Hi"}, "messages.0.tool_call_id"),
        ({"role": "assistant", "tool_calls": [{"id": "x"}]}, "messages.0.tool_calls.0"),
        ({"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "messages.0.content.0"),
        (user([]), "messages.0.content"),
        (user([{"type": "video"}]), "messages.0.content.0"),
        (user([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]), "messages.0.content.0"),
        (user([{"type": "image_url", "image_url": {"url": "data:image/png;base64,%"}}]), "messages.0.content.0"),
        (user([{"type": "input_audio", "input_audio": {"data": "?", "format": "mp3"}}]), "messages.0.content.0"),
        (user([{"type": "file", "file": {"file_id": "file-1"}}]), "messages.0.content.0"),
        ({"role": "system", "content": "Be kind."}, "messages"),
    ],
)
def test_what_cannot_be_read_is_named(message: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        read(message)
    assert caught.value.param == param


def test_calls_without_results_are_refused() -> None:
    with pytest.raises(InvalidFieldError, match="c1"):
        read(user("Hi"), {"role": "assistant", "tool_calls": [CALL]}, user("Well?"))


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "text", "image_url", "url", "input_audio", "data", "format", "file", "file_data", "id"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["system", "user", "assistant", "tool", "x"])},
            optional={
                "content": st.none() | st.text(max_size=8) | st.lists(st.dictionaries(st.just("type"), JSON) | JSON),
                "tool_call_id": st.none() | st.text(max_size=4),
            },
        ),
        max_size=4,
    )
)
def test_any_messages_are_read_or_refused(messages: list[dict[str, Any]]) -> None:
    try:
        given_messages = [ChatMessage.model_validate(message) for message in messages]
    except ValueError:
        return
    try:
        chat = parse_messages(given_messages)
    except InvalidFieldError:
        return
    assert chat.messages
    assert chat.messages[len(chat.messages) - len(chat.new) :] or not chat.new
