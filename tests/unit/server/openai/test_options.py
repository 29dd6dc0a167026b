"""How a client wants to be answered."""

from __future__ import annotations

from typing import Any

import pytest

from tellback.server.openai.errors import InvalidFieldError
from tellback.server.openai.requests import CompletionRequest, parse_options, parse_tools, provider_family
from tellback.testing import ScriptedModel

LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def body(**fields: Any) -> CompletionRequest:
    return CompletionRequest.model_validate(
        {"model": "tellback", "messages": [{"role": "user", "content": "Hi"}], **fields}
    )


def config(model: Any, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = parse_options(body(**fields), model)["config"]
    return found


def test_settings_are_in_the_providers_words() -> None:
    given = {"temperature": 1.5, "top_p": 0.9, "stop": "END", "seed": 7, "reasoning_effort": "low"}
    assert config("gpt-5", **given) == given
    assert config(ScriptedModel([]), **given) == given
    assert config("claude-sonnet-5", **given) == {"temperature": 1.0, "top_p": 0.9, "stop_sequences": ["END"]}
    assert config("gemini-2.5-flash", **given) == {
        "temperature": 1.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "seed": 7,
    }
    assert provider_family("openrouter/anthropic/claude") == provider_family("nobody-knows") == "openai"


def test_what_a_provider_does_not_know_is_refused_unless_it_changes_nothing() -> None:
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
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [LOOK]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "peek"}}, "tools": [LOOK]}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
    ],
)
def test_what_would_be_a_lie_to_ignore_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        parse_options(body(**fields), "gpt-5")
    assert caught.value.param == param


def test_what_clients_send_by_habit_is_no_trouble() -> None:
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
    ("given", "chosen"),
    [("none", "none"), ("required", "required"), ({"type": "function", "function": {"name": "look"}}, "look")],
)
def test_a_choice_of_tools_is_passed_on(given: Any, chosen: str) -> None:
    assert parse_options(body(tools=[LOOK], tool_choice=given), "gpt-5")["tool_choice"] == chosen


def test_the_shape_of_an_answer_is_a_schema() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": True}}
    assert config("gpt-5", response_format=wanted) == {"output_schema": schema}
    assert config("gpt-5", response_format={"type": "json_object"}) == {"output_schema": {"type": "object"}}
    assert config("gpt-5", response_format={"type": "text"}) == {}


def test_the_newer_name_of_a_limit_counts() -> None:
    assert parse_options(body(max_tokens=5), "gpt-5")["max_output_tokens"] == 5
    assert parse_options(body(max_tokens=5, max_completion_tokens=6), "gpt-5")["max_output_tokens"] == 6


def test_the_clients_tools_are_never_run_here() -> None:
    [tool] = parse_tools(body(tools=[{"type": "function", "function": {"name": "now", "description": None}}]))
    assert tool.requires_approval
    assert tool.parameters == {"type": "object", "properties": {}}
    assert tool.bind({"anything": 1}) == ([], {"anything": 1})


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([LOOK, LOOK], "tools.1"),
        ([{"type": "custom", "custom": {"name": "x"}}], "tools.0.type"),
        ([{"type": "function"}], "tools.0.function"),
        ([{"type": "function", "function": {"name": "a b"}}], "tools.0.function.name"),
        ([{"type": "function", "function": {"name": "a", "parameters": []}}], "tools.0.function.parameters"),
        ([{"type": "function", "function": {"name": "a", "parameters": {"type": "thing"}}}], "tools"),
    ],
)
def test_tools_that_are_none_are_named(tools: Any, param: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        parse_tools(body(tools=tools))
    assert caught.value.param == param
