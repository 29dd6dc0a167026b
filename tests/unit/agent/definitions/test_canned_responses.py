"""Canned responses are validated on creation and filled with plain values; a value is never treated as a template."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from tellback.agent.definitions.canned_responses import (
    CannedResponse,
    fill_canned_response,
    fill_canned_responses,
    parse_canned_responses,
)
from tellback.errors import FlowError


def fill_template(text: str, data: dict[str, Any] | None = None, context: Any = None) -> str | tuple[str, ...]:
    (response,) = parse_canned_responses([text], "agent 'Wanda'")
    filled, missing = fill_canned_response(response, data or {}, context)
    return missing or filled


def test_strings_mappings_and_responses_are_accepted() -> None:
    bye_response = CannedResponse("Bye!", id="bye", condition="the user leaves")
    assert parse_canned_responses(["Hi", {"text": "Yes", "id": "yes"}, bye_response], "agent") == (
        CannedResponse("Hi"),
        CannedResponse("Yes", "yes"),
        bye_response,
    )
    assert parse_canned_responses(None, "agent") == parse_canned_responses([], "agent") == ()


@pytest.mark.parametrize("value", ["Hi", {"text": "Hi"}, 5])
def test_responses_must_be_a_list(value: Any) -> None:
    with pytest.raises(FlowError, match="State 'Ask': canned_responses must be a list"):
        parse_canned_responses(value, "state 'Ask'")


@pytest.mark.parametrize(
    "bad",
    [
        "Hi {{name",
        "Hi {{{name}}",
        "{{#flights}}a",
        "a{{/flights}}",
        "{{#a}}{{#b}}{{/a}}{{/b}}",
        "{{=}}",
        "{{}}",
        "{{# }}a{{/ }}",
        "{{> header}}",
        "\ud800",
        "",
        "  ",
        5,
        None,
        {},
        {"text": 5},
        {"text": "Hi", "colour": "red"},
        CannedResponse("Hi", id=""),
        CannedResponse("Hi", condition=5),  # type: ignore[arg-type]
    ],
)
def test_invalid_responses_raise_flow_error_with_their_position(bad: Any) -> None:
    with pytest.raises(FlowError) as caught:
        parse_canned_responses(["Hello!", bad], "route 'Book'")
    assert caught.value.place == "route 'Book', canned response 2"


def test_rendering_an_unvalidated_invalid_template_raises_flow_error() -> None:
    with pytest.raises(FlowError, match="not valid Mustache"):
        fill_canned_response(CannedResponse("Hi {{name"), {}, None)


def test_names_are_filled_from_the_data_then_the_context() -> None:
    text = "{{name}} flies to {{destination}} on {{ departure }}."
    data = {"destination": "Rome", "departure": date(2026, 12, 1), "name": None}
    assert fill_template(text, data, {"name": "Maya", "destination": "Oslo"}) == "Maya flies to Rome on 2026-12-01."


def test_a_context_may_be_a_dataclass_or_model() -> None:
    @dataclass
    class Account:
        name: str
        key: SecretStr

    class Model(BaseModel):
        name: str

    assert fill_template("{{name}}", context=Account("Maya", SecretStr("x"))) == "Maya"
    assert fill_template("{{name}}", context=Model(name="Maya")) == "Maya"
    assert fill_template("{{key}}", context=Account("Maya", SecretStr("x"))) == ("key",)


def test_names_without_a_value_are_reported_once_and_in_order() -> None:
    assert fill_template("{{b}} {{a.c}} {{b}} {{d}} {{e}}", {"d": None, "e": ""}) == ("b", "a.c", "d")


def test_dotted_names_read_nested_values() -> None:
    data = {"user": {"name": "Maya", "langs": ["pt", "en"], "none": None}}
    assert fill_template("{{user.name}} {{user.langs.1}}", data) == "Maya en"
    assert fill_template("{{user.age}} {{user.name.first}} {{user.langs.2}} {{user.none}}", data) == (
        "user.age",
        "user.name.first",
        "user.langs.2",
        "user.none",
    )


def test_sections_loop_and_may_be_empty() -> None:
    text = "Found:{{#flights}} {{no}} at {{price}} for {{name}};{{/flights}}{{^flights}} nothing{{/flights}}"
    flights = [{"no": "TP1", "price": 90}, {"no": "TP2", "price": Decimal("95.50")}]
    assert (
        fill_template(text, {"flights": flights}, {"name": "Maya"})
        == "Found: TP1 at 90 for Maya; TP2 at 95.50 for Maya;"
    )
    empties: list[dict[str, Any]] = [{}, {"flights": []}, {"flights": None}, {"flights": False}]
    for empty in empties:
        assert fill_template(text, empty) == "Found: nothing"
    assert fill_template("{{#tags}}[{{.}}]{{/tags}}", {"tags": ["a", 1]}) == "[a][1]"
    assert fill_template("{{#user.vip}}Welcome!{{/user.vip}}", {"user": {"vip": True}}) == "Welcome!"


def test_a_value_missing_in_a_loop_is_not_read_from_the_outer_scope() -> None:
    assert fill_template("{{#flights}}{{price}}{{/flights}}", {"flights": [{"price": None}], "price": 5}) == ("price",)


class Size(Enum):
    BIG = "big"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["Rome", "Oslo", 3], "Rome, Oslo, 3"),
        ({"a": [1]}, '{"a":[1]}'),
        ([[1], {}], "[[1],{}]"),
        (True, "true"),
        (0, "0"),
        (False, "false"),
        (2.5, "2.5"),
        (Size.BIG, "big"),
        ("", ""),
        ('<b> & "q" {{x}}', '<b> & "q" {{x}}'),
        ("a\ud800", "a?"),
    ],
)
def test_values_are_rendered_without_escaping(value: Any, text: str) -> None:
    assert fill_template("{{v}}|{{{v}}}|{{&v}}", {"v": value}) == f"{text}|{text}|{text}"


def test_fields_of_gathered_models_can_be_used() -> None:
    class Address(BaseModel):
        city: str

    assert fill_template("{{address.city}}", {"address": Address(city="Lisbon")}) == "Lisbon"


def test_methods_and_attributes_are_never_read() -> None:
    def never() -> str:
        raise AssertionError("called")

    class Sneaky:
        secret = "s3cret"

    for name in ("text.upper", "text.__class__", "text.length", "list.append", "items", "fn", "keys", "sneaky.secret"):
        values = {"text": "a", "list": [1], "fn": never, "sneaky": Sneaky()}
        assert fill_template(f"{{{{{name}}}}}", values) == (name,)
        assert fill_template(f"{{{{{name}}}}}", {}, values) == (name,)
        assert fill_template(f"{{{{#{name}}}}}x{{{{/{name}}}}}.", {}, values) == "."


HOSTILE = [
    "{{secret}}",
    "{{#secret}}x{{/secret}}",
    "{{> x}}",
    "{{=<% %>=}}<%secret%>",
    "{{{secret}}}",
    "}}{{secret",
    "<b>&",
]


@given(st.sampled_from(HOSTILE) | st.text() | st.lists(st.sampled_from([*HOSTILE, "{", "}", "#"])).map("".join))
def test_user_text_is_never_interpreted_as_a_template(user_text: str) -> None:
    text = "Dear {{name}}, {{#list}}{{.}}{{/list}}{{a.b}}!"
    data = {"name": user_text, "list": [user_text], "a": {"b": user_text}}
    expected = f"Dear {user_text}, {user_text}{user_text}!".encode(errors="replace").decode()
    assert fill_template(text, data, {"secret": "s3cret"}) == expected


@given(st.dictionaries(st.sampled_from("abc"), st.none() | st.text() | st.integers(), max_size=3))
def test_a_response_is_filled_or_its_missing_names_are_returned(data: dict[str, Any]) -> None:
    missing = tuple(name for name in "abc" if data.get(name) is None)
    result = fill_template("{{a}} {{b}} {{c}}", data)
    assert result == (missing or " ".join(str(data[name]) for name in "abc"))


def test_filled_responses_and_missing_names_are_returned_separately() -> None:
    responses = parse_canned_responses(
        ["Hello!", "To {{destination}}", "{{name}} on {{departure}}", "{{name}}", "{{#flights}}{{.}}{{/flights}}"],
        "agent",
    )
    ready, missing = fill_canned_responses(responses, {"destination": "Rome"}, None)
    assert ready == [(responses[0], "Hello!"), (responses[1], "To Rome")]
    assert missing == ("name", "departure")
    assert fill_canned_responses([], {}, None) == ([], ())
