"""Loading agent specs from mappings, text and files, and reporting errors with their path."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tellback.errors import AgentSpecError
from tellback.specs import AgentSpec, Parameter, load_spec
from tellback.specs.loader import MAX_LENGTH
from tellback.specs.model import parse_parameter
from tests.unit.specs.strategies import PARAMETER_NAMES, PARAMETERS, WORDS, specs

TOPIC = {"type": "RECALL_BY_TOPIC", "name": "recallMemory", "memorySpaceId": "$userMemorySpaceId"}
SUPPORT: dict[str, Any] = {
    "name": "support",
    "description": "Answers questions about orders.",
    "model": "claude-sonnet-5",
    "systemPrompt": "Be brief.",
    "tools": [
        {**TOPIC, "limit": 3, "minScore": 0.2, "categoryNames": ["orders", "$category"]},
        {"type": "RECALL_BY_ENTITY", "name": "lookupEntity", "memorySpaceId": "$userMemorySpaceId"},
    ],
    "maxCycles": 4,
    "config": {"temperature": "$temperature"},
}


def load_error(source: Any) -> AgentSpecError:
    with pytest.raises(AgentSpecError) as raised:
        load_spec(source)
    return raised.value


def with_tool(**changes: Any) -> dict[str, Any]:
    return {"name": "support", "tools": [TOPIC, {**TOPIC, "name": "other", **changes}]}


# Valid specs


def test_a_spec_is_loaded_with_its_parameters() -> None:
    spec = load_spec(SUPPORT)
    assert (spec.name, spec.system, spec.max_cycles) == ("support", "Be brief.", 4)
    first: Any = spec.tools[0]
    assert first.memory_space_id == Parameter("userMemorySpaceId")
    assert first.category_names == ("orders", Parameter("category"))
    assert spec.config == {"temperature": Parameter("temperature")}
    message: object = spec.user_message
    assert message == Parameter("userMessage")


def test_keys_may_be_camel_case_or_snake_case() -> None:
    snake = {
        "name": "support",
        "system_prompt": "Be brief.",
        "max_cycles": 3,
        "max_output_tokens": 100,
        "user_message": "$text",
        "tools": [{"type": "RECALL_BY_TOPIC", "name": "a", "memory_space_id": "ms", "min_score": 0.5}],
    }
    camel = {
        "name": "support",
        "systemPrompt": "Be brief.",
        "maxCycles": 3,
        "maxOutputTokens": 100,
        "userMessage": "$text",
        "tools": [{"type": "RECALL_BY_TOPIC", "name": "a", "memorySpaceId": "ms", "minScore": 0.5}],
    }
    short = {"system" if key == "systemPrompt" else key: value for key, value in camel.items()}
    assert load_spec(snake) == load_spec(camel) == load_spec(short)


@given(specs())
@settings(deadline=None)
def test_yaml_json_and_a_mapping_give_equal_specs(description: dict[str, Any]) -> None:
    expected = load_spec(description)
    assert load_spec(json.dumps(description)) == expected
    assert load_spec(json.dumps(description, ensure_ascii=False, indent=2)) == expected
    assert load_spec(yaml.safe_dump(description)) == expected
    bare = yaml.safe_dump(description, allow_unicode=True, sort_keys=False)
    if yaml.safe_load(bare) == description:  # PyYAML does not round-trip all Unicode line breaks
        assert load_spec(bare) == expected
    assert load_spec(expected) is expected


@pytest.mark.parametrize("ending", ["json", "yaml", "yml"])
def test_a_file_is_loaded_by_its_suffix(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"support.{ending}"
    text = json.dumps(SUPPORT) if ending == "json" else yaml.safe_dump(SUPPORT)
    path.write_text(text, encoding="utf-8-sig")
    assert load_spec(path) == load_spec(SUPPORT)


@pytest.mark.parametrize("ending", ["json", "yaml", "yml"])
def test_a_string_is_never_a_file_name(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"support.{ending}"
    path.write_text("name: secret")
    assert "pathlib.Path" in load_error(str(path)).problem


def test_dates_and_times_stay_strings() -> None:
    config = load_spec("name: x\nconfig: {stop: [2026-01-01, 12:30:45, 1:30.5]}").config
    assert config == {"stop": ["2026-01-01", "12:30:45", "1:30.5"]}


def test_a_sexagesimal_number_is_a_string() -> None:
    long = "1" + ":59" * 80_000
    assert load_spec(f"name: x\nconfig: {{stop: {long}}}").config == {"stop": long}


MARKED = WORDS.map(lambda text: f"$${text}") | st.sampled_from(["$5", "$", "$ 5"])


@given(specs(PARAMETERS, MARKED))
@settings(deadline=None)
def test_a_dumped_spec_loads_as_an_equal_spec(description: dict[str, Any]) -> None:
    spec = load_spec(description)
    for alias in (True, False):
        assert load_spec(spec.model_dump(by_alias=alias)) == spec
        assert load_spec(spec.model_dump(by_alias=alias, exclude_unset=True)) == spec
        assert load_spec(spec.model_dump_json(by_alias=alias)) == spec


def test_declared_arguments_round_trip() -> None:
    declared = {"a": {"default": "$x"}, "b": {"required": False}, "c": {"required": False, "default": None}}
    spec = load_spec({"name": "x", "arguments": declared})
    reloaded = load_spec(spec.model_dump(by_alias=True))
    assert reloaded == spec
    assert [each.has_default for each in (reloaded.arguments or {}).values()] == [True, False, True]
    assert spec.model_dump(exclude_unset=True)["arguments"] == declared
    assert spec.model_dump(by_alias=True)["userMessage"] == "$userMessage"


# `$`


@given(WORDS)
@example("$name")
@example("$")
@example("$$")
def test_any_text_can_be_escaped(text: str) -> None:
    assert parse_parameter("$" + text if text.startswith("$") else text) == text


@given(PARAMETER_NAMES, WORDS)
def test_only_a_whole_text_is_a_parameter(name: str, rest: str) -> None:
    assert parse_parameter(f"${name}") == Parameter(name)
    assert parse_parameter(f"${name} {rest}") == f"${name} {rest}"
    assert parse_parameter(f" ${name}") == f" ${name}"


@pytest.mark.parametrize("text", ["${x}", "${x }", "$tone-of-voice", "$user.name", "$café", "$x!"])
def test_malformed_parameters_are_rejected(text: str) -> None:
    error = load_error({"name": "support", "config": {"stop": ["a", text]}})
    assert (error.path, error.agent) == ("config.stop[1]", "support")
    assert f"'${text}' for that exact text" in error.problem
    assert load_spec({"name": "x", "systemPrompt": f"${text}"}).system == text


def test_a_name_inside_a_longer_text_is_not_replaced() -> None:
    assert load_spec({"name": "x", "systemPrompt": "Talk like $user, for $5."}).system == "Talk like $user, for $5."


# Invalid specs


@pytest.mark.parametrize(
    ("source", "path", "message"),
    [
        ({}, "name", "required"),
        ({"name": ""}, "name", "at least 1"),
        ({"name": "  "}, "name", "not be empty"),
        ({"name": 5}, "name", "a string, got 5"),
        ({"name": "$who"}, "name", "cannot be a parameter"),
        ({"name": "x" * 300}, "name", "200"),
        ({"name": "x", "sytemPrompt": "y"}, "sytemPrompt", "did you mean 'systemPrompt'"),
        ({"name": "x", "sytem": "y"}, "sytem", "did you mean 'system'"),
        ({"name": "x", "system": "y", "systemPrompt": "z"}, "system", "two spellings"),
        ({"name": "x", "maxCycles": 2, "max_cycles": 3}, "max_cycles", "two spellings"),
        ({"name": "x", "tools": "$tools"}, "tools", "cannot be a parameter"),
        ({"name": "x", "tools": {}}, "tools", "a list"),
        ({"name": "x", "tools": [5]}, "tools[0]", "an object"),
        ({"name": "x", "config": "$config"}, "config", "cannot be a parameter"),
        ({"name": "x", "maxCycles": 0}, "maxCycles", "greater than or equal to 1"),
        ({"name": "x", "maxCycles": "3"}, "maxCycles", "an integer"),
        ({"name": "x", "maxCycles": True}, "maxCycles", "an integer"),
        ({"name": "x", "userMessage": " "}, "userMessage", "not be empty"),
        ({"name": "x", "config": {"stop": [1, float("inf")]}}, "config.stop[1]", "inf"),
        ({"name": "x", "config": {"a": {1, 2}}}, "config.a", "not JSON"),
        ({"name": "x", "config": {"a": 2**70}}, "config.a", "too large"),
        ({"name": "x", "config": {"a": "\x00"}}, "config.a", "cannot be stored"),
        ({"name": "x", "config": {"a": "\ud800"}}, "config.a", "cannot be stored"),
        ({"name": "x", "config": {"http_options": {"base_url": "http://evil"}}}, "config.http_options", "in code"),
        ({"name": "x", "config": {"extra_headers": {}}}, "config.extra_headers", "in code"),
        ({"name": "x", "config": {"extra_body": {"tools": []}}}, "config.extra_body", "in code"),
        ({"name": "x", "config": {"tools": [{"type": "web_search"}]}}, "config.tools", "in code"),
        ({"name": "x", "config": {"temperature": 0, "topP": 1}}, "config.topP", "did you mean 'top_p'"),
        ({"name": "x", 5: 1}, "", "keys must be strings"),
        ({"name": "x", "config": {True: 1}}, "config", "keys must be strings"),
        ({"name": "x", "arguments": {"a b": {}}}, "arguments.a b", "letters"),
        ({"name": "x", "arguments": {"a": {"type": "text"}}}, "arguments.a.type", "'string'"),
        ({"name": "x", "arguments": {"a": {"typ": "string"}}}, "arguments.a.typ", "did you mean 'type'"),
        ({"name": "x", "arguments": {"a": {"type": "integer", "default": "5"}}}, "arguments.a.default", "integer"),
        ({"name": "x", "arguments": {"a": {"default": None}}}, "arguments.a.default", "required: false"),
        ({"name": "x", "arguments": {"space": {}}, "model": "$spaec"}, "model", "did you mean 'space'"),
        (with_tool(memorySpaceID="ms"), "tools[1].memorySpaceID", "did you mean 'memorySpaceId'"),
        (with_tool(memorySpaceId=""), "tools[1].memorySpaceId", "at least 1"),
        (with_tool(memorySpaceId=None), "tools[1].memorySpaceId", "a string"),
        (with_tool(type="RECALL_TOPIC"), "tools[1].type", "did you mean 'RECALL_BY_TOPIC'"),
        (with_tool(type="SHELL"), "tools[1].type", "FUNCTION"),
        (with_tool(type="$type"), "tools[1].type", "cannot be a parameter"),
        (with_tool(type=[]), "tools[1].type", "unknown tool type"),
        (with_tool(name="recallMemory"), "tools[1].name", "another tool"),
        (with_tool(name="recall memory"), "tools[1].name", "1 to 64 letters"),
        (with_tool(name="a\n"), "tools[1].name", "1 to 64 letters"),
        (with_tool(name="$name"), "tools[1].name", "cannot be a parameter"),
        (with_tool(limit=51), "tools[1].limit", "less than or equal to 50"),
        (with_tool(minScore=float("nan")), "tools[1].minScore", "nan"),
        (with_tool(categoryNames=[]), "tools[1].categoryNames", "at least 1"),
        (with_tool(categoryNames="orders"), "tools[1].categoryNames", "a list"),
        (with_tool(categoryNames=["orders", 5]), "tools[1].categoryNames[1]", "a string"),
        (with_tool(type="FORGET", limit=3), "tools[1].limit", "unknown key"),
        ({"name": "x", "tools": [{"type": "RECALL_TIMELINE", "name": "t"}]}, "tools[0].memorySpaceId", "required"),
        ({"name": "x", "tools": [{"name": "t"}]}, "tools[0].type", "RECALL_TIMELINE"),
    ],
)
def test_errors_are_reported_with_their_path(source: Any, path: str, message: str) -> None:
    error = load_error(source)
    assert error.path == path
    assert message in error.problem
    assert path in str(error)
    assert error.agent in str(error)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (5, "got 5"),
        (None, "got None"),
        ("", "an object"),
        ("- a\n- b", "an object"),
        ("{", "invalid JSON"),
        ('{"name": "a", "name": "b"}', "duplicate key 'name'"),
        ('{"name": "x", "config": {"a": NaN}}', "NaN"),
        ('{"a":' * 50_000, "invalid JSON"),
        ('{"name": "x", "maxCycles": ' + "9" * 5_000 + "}", "invalid JSON"),
        ("name: a\nname: b", "duplicate key 'name'"),
        ("name: [", "invalid YAML"),
        ("name: a\n---\nname: b", "single document"),
        ("name: a\x07b", "invalid YAML"),
        ("name: !!python/object/apply:os.system [echo]", "tag"),
        ("name: !env HOME", "tag"),
        ("name: &a x\nmodel: *a", "anchors"),
        ("name: x\nconfig: &a [*a]", "anchors"),
        ("name: x\n<<: {model: y}", "'<<'"),
        ("on: x\nname: y", "keys must be strings"),
        ("? [a]\n: b", "keys must be strings"),
        ("[" * 100_000, "nested"),
        ("- " * 500, "nested"),
        ("name: x\nmaxCycles: " + "9" * 5_000, "invalid YAML"),
        ("name: x\nconfig: {a: .nan}", "nan"),
        ("name: " + "x" * MAX_LENGTH, "longer than 256 kB"),
        ("[" + "a," * 25_000 + "]", "values"),
        ("agents/nothing.yaml", "pathlib.Path"),
        (Path("agents/nothing.yaml"), "no file"),
        (Path("agents/support.toml"), ".yml"),
        (Path("/"), ".yml"),
    ],
)
def test_malicious_and_malformed_sources_are_rejected(source: Any, message: str) -> None:
    assert message in str(load_error(source))


def test_shared_and_cyclic_values_in_a_mapping_are_rejected() -> None:
    bomb: list[Any] = ["boom"]
    for _ in range(25):
        bomb = [bomb, bomb]
    assert "values" in load_error({"name": "x", "config": {"a": bomb}}).problem
    endless: list[Any] = []
    endless.append(endless)
    assert "nested" in load_error({"name": "x", "config": {"a": endless}}).problem


def test_invalid_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("# " + "x" * MAX_LENGTH)
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    (tmp_path / "folder.yaml").mkdir()
    assert "longer" in load_error(tmp_path / "large.yaml").problem
    assert "UTF-8" in load_error(tmp_path / "latin.yaml").problem
    assert "no file" in load_error(tmp_path / "folder.yaml").problem


@given(st.text(max_size=200))
@settings(deadline=None)
def test_any_text_is_loaded_or_rejected(text: str) -> None:
    with suppress(AgentSpecError):
        assert isinstance(load_spec(text), AgentSpec)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just("$x"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    ),
    st.sampled_from(["tools", "config", "arguments", "userMessage", "maxCycles", "system", "namespace", "type"]),
)
@settings(deadline=None)
def test_any_value_of_any_key_is_loaded_or_rejected(value: Any, key: str) -> None:
    for source in ({"name": "x", key: value}, {"name": "x", "tools": [value]}, with_tool(**{key: value})):
        with suppress(AgentSpecError):
            assert isinstance(load_spec(source), AgentSpec)
