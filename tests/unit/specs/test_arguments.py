"""Binding arguments to the parameters of a spec."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.errors import AgentSpecError
from tellback.specs import BoundSpec, bind, load_spec
from tests.unit.specs.strategies import JSON, NAMES, PARAMETER_NAMES, WORDS, specs

TOOL = {"type": "RECALL_BY_TOPIC", "name": "recall", "memorySpaceId": "$space"}
VALUES = JSON.filter(lambda value: value is not None)
PLACES: dict[str, tuple[Any, ...]] = {
    "systemPrompt": ("Be brief.", "$other", "$$x", ""),
    "model": ("m-1", "$other"),
    "namespace": ("chats", "$other"),
    "description": ("What it is for.", "$other"),
    "maxCycles": (3, 7),
    "maxOutputTokens": (100,),
}


def bind_error(spec: Any, arguments: Any, **options: Any) -> AgentSpecError:
    with pytest.raises(AgentSpecError) as raised:
        bind(load_spec(spec), arguments, **options)
    return raised.value


def dump_spec(bound_spec: BoundSpec) -> dict[str, Any]:
    found: dict[str, Any] = bound_spec.model_dump()
    return found


# Properties for any arguments


@given(specs(), st.dictionaries(PARAMETER_NAMES, JSON))
@settings(deadline=None)
def test_unused_arguments_change_nothing(description: dict[str, Any], arguments: dict[str, Any]) -> None:
    spec = load_spec({**description, "userMessage": "Hello."})
    assert bind(spec, arguments) == bind(spec)


@given(specs(), st.data())
@settings(deadline=None)
def test_an_argument_changes_only_its_parameter(description: dict[str, Any], data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(sorted(PLACES)))
    value = data.draw(st.sampled_from(PLACES[place]))
    description = {**description, "userMessage": "Hello."}
    before = {**description, place: 1 if isinstance(value, int) else "before"}
    field = "system" if place == "systemPrompt" else load_spec_field(place)
    bound_spec = bind(load_spec({**description, place: "$it"}), {"it": value, "other": "resolved twice"})
    expected = {**dump_spec(bind(load_spec(before))), field: value}
    assert dump_spec(bound_spec) == expected
    assert type(dump_spec(bound_spec)[field]) is type(value)


def load_spec_field(key: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in key)


@given(st.dictionaries(st.sampled_from("abc"), VALUES | st.sampled_from(["$a", "$b", "$$a"]), min_size=3))
@settings(deadline=None)
def test_a_value_that_looks_like_a_parameter_stays_a_text(arguments: dict[str, Any]) -> None:
    spec = load_spec({"name": "x", "userMessage": "Hi.", "config": {"seed": "$a", "stop": ["$b", {"three": "$c"}]}})
    bound_spec = bind(spec, arguments)
    expected = {"seed": arguments["a"], "stop": [arguments["b"], {"three": arguments["c"]}]}
    assert json.dumps(bound_spec.config) == json.dumps(expected)


@given(JSON | st.just({"type": "FORGET", "name": "forget", "memorySpaceId": "ms"}))
@settings(deadline=None)
def test_an_argument_cannot_change_the_tools(value: Any) -> None:
    spec = load_spec({"name": "x", "userMessage": "Hi.", "tools": [{**TOOL, "description": "$it", "limit": "$it"}]})
    arguments = {"it": value, "space": "ms_1"}
    with pytest.raises(AgentSpecError, match=r"at tools\[0\]\.(description|limit)"):
        bind(spec, arguments)


@given(specs(), st.dictionaries(PARAMETER_NAMES, JSON, max_size=3))
@settings(deadline=None)
def test_binding_changes_neither_the_spec_nor_the_arguments(
    description: dict[str, Any], arguments: dict[str, Any]
) -> None:
    spec = load_spec({**description, "config": {"stop": ["$it", {"again": "$it"}]}})
    arguments = {"userMessage": "Hi.", "it": [1], **arguments}
    before, original = (
        load_spec({**description, "config": {"stop": ["$it", {"again": "$it"}]}}),
        copy.deepcopy(arguments),
    )
    bound_spec = bind(spec, arguments)
    bound_spec.config["stop"].append("changed")
    assert spec == before
    assert arguments == original
    assert bind(spec, arguments).config["stop"] == [arguments["it"], {"again": arguments["it"]}]


@given(NAMES, WORDS.filter(lambda text: bool(text.strip())))
@settings(deadline=None)
def test_one_spec_serves_every_user(space: str, message: str) -> None:
    bound_spec = bind(load_spec({"name": "x", "tools": [TOOL]}), {"space": space, "userMessage": message})
    first: Any = bound_spec.tools[0]
    assert (first.memory_space_id, bound_spec.user_message) == (space, message)


# Rejected arguments


@pytest.mark.parametrize(
    ("changes", "arguments", "path", "message"),
    [
        ({}, {"userMessage": "Hi."}, "tools[0].memorySpaceId", "'space' is missing"),
        ({}, {"space": "ms"}, "userMessage", "'userMessage' is missing"),
        ({}, {"space": 5, "userMessage": "Hi."}, "tools[0].memorySpaceId", "a string, got 5"),
        ({}, {"space": "", "userMessage": "Hi."}, "tools[0].memorySpaceId", "at least 1"),
        ({}, {"space": ["ms"], "userMessage": "Hi."}, "tools[0].memorySpaceId", "a string"),
        ({}, {"space": "ms", "userMessage": None}, "userMessage", "is null"),
        ({}, {"space": None, "userMessage": "Hi."}, "tools[0].memorySpaceId", "'space' is null"),
        ({"maxCycles": "$n"}, {"space": "ms", "userMessage": "Hi.", "n": None}, "maxCycles", "default: null"),
        (
            {"tools": [{**TOOL, "categoryNames": "$names"}]},
            {"space": "ms", "userMessage": "Hi.", "names": None},
            "tools[0].categoryNames",
            "is null",
        ),
        (
            {"tools": [{**TOOL, "categoryNames": "$names"}]},
            {"space": "ms", "userMessage": "Hi.", "names": []},
            "tools[0].categoryNames",
            "at least 1",
        ),
        ({}, {"space": "ms", "userMessage": {"text": "Hi."}}, "userMessage", "a string"),
        ({"maxCycles": "$n"}, {"space": "ms", "userMessage": "Hi.", "n": "3"}, "maxCycles", "an integer"),
        ({"maxCycles": "$n"}, {"space": "ms", "userMessage": "Hi.", "n": 0}, "maxCycles", "greater"),
        ({"config": {"stop": ["$n"]}}, {"space": "ms", "userMessage": "Hi."}, "config.stop[0]", "'n' is missing"),
        ({"config": {"seed": "$n"}}, {"space": "ms", "userMessage": "Hi.", "n": object()}, "arguments.n", "not JSON"),
        ({}, {"space": "ms", "userMessage": "Hi.", 5: 1}, "arguments", "must be strings"),
        ({}, ["space"], "arguments", "a mapping"),
    ],
)
def test_invalid_arguments_are_rejected_with_their_path(
    changes: dict[str, Any], arguments: Any, path: str, message: str
) -> None:
    error = bind_error({"name": "support", "tools": [TOOL], **changes}, arguments)
    assert error.agent == "support"
    assert message in str(error)
    assert not path or error.path == path


DECLARED = {
    "name": "support",
    "namespace": "$namespace",
    "maxCycles": "$cycles",
    "config": {"stop": ["a", "$tag"]},
    "tools": [TOOL],
    "arguments": {
        "space": {"type": "string", "description": "The space to look into."},
        "cycles": {"type": "integer", "default": 4},
        "namespace": {"required": False},
        "tag": {"required": False},
    },
}


def test_declared_arguments_have_defaults_and_may_be_optional() -> None:
    bound_spec = bind(load_spec(DECLARED), {"space": "ms", "userMessage": "Hi."})
    assert (bound_spec.max_cycles, bound_spec.namespace, bound_spec.config) == (4, None, {"stop": ["a"]})
    values = {"space": "ms", "userMessage": "Hi.", "cycles": 2, "namespace": "n", "tag": "b"}
    bound_spec = bind(load_spec(DECLARED), values)
    assert (bound_spec.max_cycles, bound_spec.namespace, bound_spec.config) == (2, "n", {"stop": ["a", "b"]})


@pytest.mark.parametrize(
    ("arguments", "path", "message"),
    [
        ({"userMessage": "Hi."}, "arguments.space", "required"),
        ({"userMessage": "Hi.", "space": 5}, "arguments.space", "type string"),
        ({"userMessage": "Hi.", "space": "ms", "cycles": True}, "arguments.cycles", "type integer"),
        ({"userMessage": "Hi.", "space": "ms", "cycle": 3}, "arguments.cycle", "did you mean 'cycles'"),
        ({"space": "ms"}, "userMessage", "missing"),
    ],
)
def test_declared_arguments_are_checked(arguments: dict[str, Any], path: str, message: str) -> None:
    error = bind_error(DECLARED, arguments)
    assert error.path == path
    assert message in error.problem


def test_null_is_accepted_only_where_it_is_declared() -> None:
    names = {"type": "array", "required": False}
    spec = {"name": "x", "tools": [{**TOOL, "categoryNames": "$names"}], "arguments": {"space": {}, "names": names}}
    values = {"space": "ms", "userMessage": "Hi."}
    assert "type array" in bind_error(spec, {**values, "names": None}).problem
    names["default"] = None
    for arguments in (values, {**values, "names": None}):
        first: Any = bind(load_spec(spec), arguments).tools[0]
        assert first.category_names is None
    first = bind(load_spec(spec), {**values, "names": ["diet"]}).tools[0]
    assert first.category_names == ("diet",)


def test_a_list_that_is_empty_without_its_arguments_is_rejected() -> None:
    tool = {**TOOL, "memorySpaceId": "ms", "categoryNames": ["$name"]}
    spec = {"name": "x", "tools": [tool], "arguments": {"name": {"required": False}}}
    assert bind_error(spec, {"userMessage": "Hi."}).path == "tools[0].categoryNames"


def test_an_optional_message_is_required_unless_resuming() -> None:
    spec = {"name": "x", "userMessage": "$text", "arguments": {"text": {"required": False}}}
    assert bind_error(spec, {}).path == "userMessage"
    assert bind(load_spec(spec), {}, resuming=True).user_message is None


def test_a_default_that_looks_like_a_parameter_stays_a_text() -> None:
    spec = {"name": "x", "model": "$model", "arguments": {"model": {"default": "$other"}}}
    assert bind(load_spec(spec), {"userMessage": "Hi."}).model == "$other"


def test_a_message_may_contain_any_characters() -> None:
    assert bind(load_spec({"name": "x"}), {"userMessage": "a\x00b"}).user_message == "a\x00b"


def test_resuming_needs_no_message_even_if_its_argument_is_required() -> None:
    described = {
        "name": "payer",
        "arguments": {"userMessage": {"type": "string"}, "space": {"type": "string"}},
        "tools": [{"type": "RECALL_BY_TOPIC", "name": "recall", "memorySpaceId": "$space"}],
    }
    spec = load_spec(described)
    assert bind(spec, {"space": "ms_1"}, resuming=True).user_message is None
    with pytest.raises(AgentSpecError, match="userMessage: required"):
        bind(spec, {"space": "ms_1"})
    with pytest.raises(AgentSpecError, match="space: required"):
        bind(spec, {}, resuming=True)
