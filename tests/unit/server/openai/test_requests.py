"""Parsing of a client's messages and options."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.server.openai.errors import InvalidFieldError
from tellback.server.openai.requests import (
    ChatMessage,
    CompletionRequest,
    ParsedChat,
    parse_messages,
    parse_options,
    parse_tools,
    text_of_parts,
)
from tellback.testing import ScriptedModel

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":"it"}'}}


def parse_chat(*messages: dict[str, Any]) -> ParsedChat:
    return parse_messages([ChatMessage.model_validate(message) for message in messages])


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_leading_system_messages_are_the_system_prompt() -> None:
    chat = parse_chat(
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        user("Hi"),
        {"role": "system", "content": "It is late."},
    )
    assert chat.system == "Be kind.\n\nBe brief."
    assert [(each.role, each.content) for each in chat.messages] == [("user", "Hi"), ("system", "It is late.")]
    assert [each.role for each in chat.new] == ["user"]


def test_messages_after_the_last_answer_are_new() -> None:
    chat = parse_chat(
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


def test_a_trailing_answer_leaves_no_new_messages() -> None:
    chat = parse_chat(user("Say yes"), {"role": "assistant", "content": "Y"})
    assert chat.new == ()
    assert chat.last_user_text == "Say yes"


def test_content_parts_become_message_parts() -> None:
    data = base64.b64encode(b"bytes").decode()
    [message] = parse_chat(
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
    assert message.parts is not None
    assert [(part.kind, part.mime, part.name) for part in message.parts] == [
        ("text", None, None),
        ("image", "image/gif", None),
        ("audio", "audio/mpeg", None),
        ("file", "text/plain", "a.txt"),
        ("file", "application/pdf", None),
    ]
    assert text_of_parts(message) == "Look:"


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
def test_invalid_messages_are_reported_with_their_field(message: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        parse_chat(message)
    assert caught.value.param == param


def test_calls_without_results_are_rejected() -> None:
    with pytest.raises(InvalidFieldError, match="c1"):
        parse_chat(user("Hi"), {"role": "assistant", "tool_calls": [CALL]}, user("Well?"))


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
def test_arbitrary_messages_are_parsed_or_rejected(messages: list[dict[str, Any]]) -> None:
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


LOOK_TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def body(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate(
        {"model": "tellback", "messages": [{"role": "user", "content": "Hi"}], **fields}
    )


def config(model: Any, **fields: Any) -> Mapping[str, Any]:
    return parse_options(body(**fields), model)["config"]


def test_settings_have_the_providers_names() -> None:
    options = {"temperature": 1.5, "top_p": 0.9, "stop": "END", "seed": 7, "reasoning_effort": "low"}
    assert config("gpt-5", **options) == options
    assert config(ScriptedModel([]), **options) == options
    assert config("claude-sonnet-5", **options) == {"temperature": 1.0, "top_p": 0.9, "stop_sequences": ["END"]}
    assert config("gemini-2.5-flash", **options) == {
        "temperature": 1.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "seed": 7,
    }
    assert config("openrouter/anthropic/claude", **options) == options


def test_unsupported_settings_are_rejected_unless_they_are_hints() -> None:
    assert config("claude-sonnet-5", presence_penalty=0, logit_bias={}) == {}
    with pytest.raises(InvalidFieldError) as caught:
        parse_options(body(presence_penalty=0.5), "claude-sonnet-5")
    assert caught.value.param == "presence_penalty"
    assert config("gpt-5", presence_penalty=0.5, logit_bias={"50256": -100}) == {
        "presence_penalty": 0.5,
        "logit_bias": {"50256": -100},
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "alloy"}}, "modalities"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"function_call": "auto"}, "functions"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [LOOK_TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "peek"}}, "tools": [LOOK_TOOL]}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
    ],
)
def test_unsupported_fields_are_rejected(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        parse_options(body(**fields), "gpt-5")
    assert caught.value.param == param


def test_default_values_that_clients_always_send_are_accepted() -> None:
    sent = body(
        n=1,
        logprobs=False,
        modalities=["text"],
        store=True,
        service_tier="auto",
        prompt_cache_key="x",
        safety_identifier="y",
        tools=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        functions=[],
        stop=[],
    )
    assert parse_options(sent, "gpt-5")["config"] == {}
    assert "tool_choice" not in parse_options(sent, "gpt-5")


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("none", "none"), ("required", "required"), ({"type": "function", "function": {"name": "look"}}, "look")],
)
def test_tool_choice_is_passed_on(choice: Any, expected: str) -> None:
    assert parse_options(body(tools=[LOOK_TOOL], tool_choice=choice), "gpt-5")["tool_choice"] == expected


def test_response_format_becomes_an_output_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    response_format = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    assert config("gpt-5", response_format=response_format) == {"output_schema": schema}
    assert config("gpt-5", response_format={"type": "json_object"}) == {"output_schema": {"type": "object"}}
    assert config("gpt-5", response_format={"type": "text"}) == {}


def test_max_completion_tokens_takes_precedence() -> None:
    assert parse_options(body(max_tokens=5), "gpt-5")["max_output_tokens"] == 5
    assert parse_options(body(max_tokens=5, max_completion_tokens=6), "gpt-5")["max_output_tokens"] == 6


def test_the_clients_tools_are_never_run_by_the_server() -> None:
    [tool] = parse_tools(body(tools=[{"type": "function", "function": {"name": "now", "description": None}}]))
    assert tool.requires_approval
    assert tool.parameters == {"type": "object", "properties": {}}
    assert tool.bind({"anything": 1}) == ([], {"anything": 1})


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([LOOK_TOOL, LOOK_TOOL], "tools.1"),
        ([{"type": "custom", "custom": {"name": "x"}}], "tools.0.type"),
        ([{"type": "function"}], "tools.0.function"),
        ([{"type": "function", "function": {"name": "a b"}}], "tools.0.function.name"),
        ([{"type": "function", "function": {"name": "a", "parameters": []}}], "tools.0.function.parameters"),
        ([{"type": "function", "function": {"name": "a", "parameters": {"type": "thing"}}}], "tools"),
    ],
)
def test_invalid_tools_are_reported(tools: Any, param: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        parse_tools(body(tools=tools))
    assert caught.value.param == param
