"""Schemas of client tools: invalid ones are rejected, and none can stop the server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import SchemaError

from tellback import Tellback
from tellback.errors import InvalidArgumentError, RequestTooLargeError
from tellback.server.client_tools import (
    MAX_SCHEMA_CHARACTERS,
    MAX_SCHEMA_NODES,
    build_client_tools,
    validate_schemas,
)
from tellback.server.requests import iter_values
from tellback.testing import ScriptedModel, says
from tellback.tools.json_schema import find_schema_error
from tellback.wire.turns import ToolIn
from tests.support.rest import expect_json, rest_client

COSTLY = "|".join(f"(?i:[à-\uffff]x{number})" for number in range(1_000))
"""A pattern that takes seconds to compile."""

SCHEMA = ("items", "additionalProperties", "not", "if", "unevaluatedItems", "contentSchema", "propertyNames")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
PLAIN = (
    *("type", "required", "enum", "maximum", "multipleOf", "minLength", "maxItems", "uniqueItems", "title", "pattern"),
    *("dependentRequired", "examples", "default", "const", "format", "$ref", "x-own", "dependencies"),
)
types = st.sampled_from(["string", "object", "int", "null"])
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from([0.5, 2.0, -1.0]),
    types,
    st.lists(types, max_size=3),
    st.lists(st.integers(0, 1), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.lists(types, max_size=2), max_size=2),
)


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keyed = st.dictionaries(st.sampled_from(["a", "type"]), inner, max_size=2)
    return st.builds(
        lambda *parts: {name: value for part in parts for name, value in part.items()},
        st.dictionaries(st.sampled_from(PLAIN), leaves, max_size=2),
        st.dictionaries(st.sampled_from(SCHEMA), inner, max_size=1),
        st.dictionaries(st.sampled_from(MAPS), keyed | inner, max_size=1),
        st.dictionaries(st.sampled_from(LISTS), st.lists(inner, max_size=2), max_size=1),
    )


schemas = st.recursive(leaves, _schemas, max_leaves=6)


@settings(max_examples=200)
@given(schema=schemas)
@example(schema={"type": []})
@example(schema={"type": ["string", "string"]})
@example(schema={"minLength": 2.0})
@example(schema={"dependencies": {"a": ["b"], "c": {"type": 7}}})
def test_schemas_are_accepted_exactly_if_the_validator_accepts_them(schema: Any) -> None:
    try:
        Draft202012Validator.check_schema(schema, format_checker=FormatChecker(formats=()))
    except SchemaError:
        is_schema = False
    else:
        is_schema = True
    assert (find_schema_error(schema) is None) is is_schema


@given(value=st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner)))
def test_all_nested_values_are_counted(value: Any) -> None:
    found = [value for _, value in iter_values(value, 10**6)]
    nested_count = sum(len(value) for value in found if isinstance(value, dict | list))
    assert len(found) == nested_count + 1
    assert len(list(iter_values(value, nested_count))) == len(found)
    if nested_count:
        with pytest.raises(RequestTooLargeError):
            list(iter_values(value, nested_count - 1))


def tool(parameters: dict[str, Any], name: str = "lookup") -> ToolIn:
    return ToolIn(name=name, parameters=parameters)


def test_patterns_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr("re.compile", lambda *args: compiled.append(args))
    monkeypatch.setattr("re._compile", lambda *args: compiled.append(args))
    validate_schemas(
        [("lookup", {"properties": {"x": {"pattern": COSTLY}}, "patternProperties": {COSTLY[:9_000]: {}}})]
    )
    assert compiled == []


def test_the_total_size_of_all_schemas_is_limited() -> None:
    half: dict[str, Any] = {"properties": {f"p{number}": {} for number in range(MAX_SCHEMA_NODES // 2)}}
    build_client_tools([tool(half)])
    with pytest.raises(RequestTooLargeError, match=f"more than {MAX_SCHEMA_NODES} values"):
        build_client_tools([tool(half), tool(half, "another")])
    long = {"description": "x" * (MAX_SCHEMA_CHARACTERS // 2)}
    build_client_tools([tool(long)])
    with pytest.raises(RequestTooLargeError, match=f"at most {MAX_SCHEMA_CHARACTERS} are allowed"):
        build_client_tools([tool(long), tool(long, "another")])


def test_an_invalid_schema_is_reported_with_its_tool() -> None:
    with pytest.raises(InvalidArgumentError, match=r"'lookup' are not a valid JSON schema: 'type' must be array"):
        build_client_tools([tool({"type": [{"a": number} for number in range(900)]})])
    nested: dict[str, Any] = {}
    for _ in range(900):
        nested = {"not": nested}
    assert find_schema_error(nested) is None
    with suppress(InvalidArgumentError):
        build_client_tools(
            [tool({"required": [number for pair in zip(range(900), "ab" * 450, strict=True) for number in pair]})]
        )


@pytest.mark.parametrize("path", ["/ai-conversations/chat", "/v1/chat/completions"])
async def test_large_schemas_are_rejected_and_costly_patterns_accepted(path: str) -> None:
    def body(parameters: dict[str, Any]) -> dict[str, Any]:
        if path.startswith("/v1"):
            function = {"type": "function", "function": {"name": "lookup", "parameters": parameters}}
            message = {"role": "user", "content": "Hi"}
            return {"model": "tellback", "messages": [message], "tools": [function]}
        return {"text": "Hi", "tools": [{"name": "lookup", "parameters": parameters}]}

    async with (
        Tellback(":memory:", model=ScriptedModel([says("Hello.")]), worker=False) as tb,
        rest_client(tb) as client,
    ):
        large = {"properties": {f"p{number}": {"type": "string"} for number in range(MAX_SCHEMA_NODES)}}
        expect_json(await client.post(path, json=body(large)), 413)
        expect_json(await client.post(path, json=body({"properties": {"x": {"pattern": COSTLY}}})))
