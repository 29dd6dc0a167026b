"""Properties of names, schemas, results and messages for anything a server may send."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tellback.tools.mcp.tool_list import (
    MAX_BLOCKS,
    MAX_DESCRIPTION,
    MAX_MEDIA,
    MAX_MEDIA_CHARS,
    MAX_TOOLS,
    ToolListPages,
    ToolListTooLarge,
    UnusableSchema,
    assign_legal_names,
    build_shallow_binder,
    limit_blocks,
    normalize_schema,
    to_tool_result,
)
from tellback.tools.mcp.transport import decode, encode
from tellback.tools.schema import InvalidInput

keys = st.sampled_from(
    ["type", "properties", "items", "$ref", "allOf", "anyOf", "$defs", "not", "pattern", "required", "x", "$id"]
)
refs = st.sampled_from(
    ["#", "#/$defs/x", "#/properties/x", "#/items/0", "http://192.0.2.1/x", "#x", "object", "x(", ""]
)
json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | refs
    | st.text(max_size=5),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(keys | st.text(max_size=4), children, max_size=4),
    max_leaves=20,
)
schemas = st.dictionaries(keys, json, max_size=5).map(lambda schema: {**schema, "type": "object"})


@given(st.lists(st.text(min_size=1, max_size=90), unique=True, max_size=30), st.sampled_from([None, "files"]))
def test_names_are_valid_unique_and_stable(names: list[str], prefix: str | None) -> None:
    found = assign_legal_names(names, prefix)
    assert list(found) == names
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found.values())
    assert len(set(found.values())) == len(names)
    assert assign_legal_names(names[::-1], prefix) == found


def test_colliding_names_get_different_suffixes() -> None:
    found = assign_legal_names(["a.b", "a_b", "a/b"])
    assert found["a_b"] == "a_b"
    assert len(set(found.values())) == 3
    assert len(assign_legal_names(["x" * 200])["x" * 200]) == 64


@settings(deadline=None)
@given(schemas | json, json)
def test_a_schema_is_rejected_or_can_validate_any_input(schema: Any, value: Any) -> None:
    try:
        usable = normalize_schema(schema)
    except UnusableSchema:
        return
    assert usable["type"] == "object"
    try:
        args, kwargs = build_shallow_binder(usable)({"x": value})
    except InvalidInput:
        return
    assert (args, kwargs) == ([], {"x": value})


@settings(deadline=None)
@given(st.lists(json | st.fixed_dictionaries({"name": json, "inputSchema": schemas, "description": json}), max_size=5))
def test_every_listed_tool_is_accepted_or_rejected(tools: list[Any]) -> None:
    pages = ToolListPages()
    page = pages.filter_page({"tools": tools, "nextCursor": "2"})
    assert len(page["tools"]) + len(pages.refused) == len(tools)
    assert page["nextCursor"] == "2"
    assert all(len(tool["description"]) <= MAX_DESCRIPTION for tool in page["tools"])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, "external reference"),
        ({"$defs": {"a": {"$ref": "https://example.com/a"}}}, "external reference"),
        ({"x-more": {"a": {"$ref": "https://example.com/a"}}, "$ref": "#/x-more/a"}, "external reference"),
        ({"properties": {"x": {"$id": "http://example.com", "$ref": "#/a"}}}, r"\$id"),
        ({"properties": {"x": {"$ref": "#/properties/y"}}}, "does not contain"),
        ({"properties": {"x": {"$ref": "#somewhere"}}}, "does not contain"),
    ],
)
def test_unresolvable_references_are_rejected(schema: Any, reason: str) -> None:
    with pytest.raises(UnusableSchema, match=reason):
        normalize_schema(schema)


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    schema = normalize_schema({"properties": {"$ref": {"type": "string"}, "default": {"enum": [{"$ref": "http://x"}]}}})
    with pytest.raises(InvalidInput):
        build_shallow_binder(schema)({"$ref": 3})


def test_definitions_of_older_drafts_are_accepted() -> None:
    schema = normalize_schema(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"x": {"$ref": "#/definitions/size"}},
            "definitions": {"size": {"type": "integer", "minimum": 1}},
        }
    )
    assert "$schema" not in schema
    assert build_shallow_binder(schema)({"x": 1}) == ([], {"x": 1})


@settings(deadline=None)
@given(schemas)
def test_usable_schemas_are_valid_for_any_provider(schema: Any) -> None:
    try:
        usable = normalize_schema(schema)
    except UnusableSchema:
        return
    Draft202012Validator.check_schema(usable)


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": ["string", "string"]},
        {"type": []},
        {"required": "x"},
        {"enum": "x"},
        {"anyOf": []},
        {"items": [{}]},
        {"exclusiveMinimum": True},
        {"minLength": -1},
        {"multipleOf": 0},
        {"properties": []},
        {"properties": {"y": 3}},
        {"description": 3},
    ],
)
def test_one_invalid_keyword_makes_a_schema_unusable(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnusableSchema):
        normalize_schema({"properties": {"x": wrong}})


def test_input_is_validated_only_one_level_deep() -> None:
    properties = {
        "count": {"type": "integer"},
        "size": {"enum": ["small", "large"]},
        "note": {"type": ["string", "null"], "pattern": "^(a+)+$"},
        "deep": {"type": "object", "properties": {"x": {"type": "integer"}}},
    }
    bind = build_shallow_binder(
        normalize_schema({"properties": properties, "required": ["count"], "additionalProperties": False})
    )
    good = {"count": 2.0, "size": "small", "note": "a" * 60 + "!", "deep": {"x": "not checked here"}}
    assert bind(good) == ([], good)
    for wrong, reason in (
        ({}, "'count' is a required property"),
        ({"count": True}, "count: True is not of type 'integer'"),
        ({"count": 1, "size": "huge"}, "size: 'huge' is not one of"),
        ({"count": 1, "note": 3}, "note: 3 is not of type 'string' or 'null'"),
        ({"count": 1, "more": 3}, "'more' is not a property"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            bind(wrong)


def test_checking_an_exponential_schema_is_fast() -> None:
    schema = normalize_schema({"properties": {"x": {"allOf": [{"$ref": "#"}] * 500}}})
    value: dict[str, Any] = {}
    for _ in range(50):
        value = {"x": value}
    assert build_shallow_binder(schema)(value) == ([], value)


def test_a_list_with_too_many_tools_or_too_much_text_is_rejected() -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}}
    pages = ToolListPages()
    pages.filter_page({"tools": [tool] * MAX_TOOLS})
    with pytest.raises(ToolListTooLarge, match="more than 2000 tools"):
        pages.filter_page({"tools": [tool]})
    with pytest.raises(ToolListTooLarge, match="more than 1000000 characters"):
        ToolListPages().filter_page({"tools": [{**tool, "description": "y" * 4_000}] * 300})


@given(st.lists(st.text("ab ", max_size=50), max_size=8), st.integers(1, 100))
def test_text_is_truncated_to_the_limit(texts: list[str], limit: int) -> None:
    result = to_tool_result({"content": [{"type": "text", "text": text} for text in texts]}, limit)
    full_text = "\n\n".join(text for text in texts if text)
    note = f"[truncated: the first {limit} of {len(full_text)} characters are shown]"
    assert result.content.endswith(note) == (len(full_text) > limit)
    shown_text = result.content.removesuffix(note)
    assert full_text.startswith(shown_text.removesuffix("\n\n"))
    assert len(shown_text) <= limit + 2
    assert result.parts is None


def test_image_names_count_as_text() -> None:
    content = [{"type": "text", "text": "x" * 100}, *[{"type": "image", "data": "AAAA", "mimeType": "image/png"}] * 3]
    result = to_tool_result({"content": content}, 100)
    assert result.content.startswith("x" * (100 - 3 * len("[image: image/png]\n\n")) + "\n\n")
    assert [part.kind for part in result.parts or ()] == ["text", "image", "image", "image", "text"]


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        ("not base64!!", "image/png"),
        ("AAA", "image/png"),
        ("ÄÄÄÄ", "image/png"),
        ("", "image/png"),
        ("AAAA", "image/png\r\nx: y"),
        ("AAAA", "image/"),
        ("AAAA", "image/" + "x" * 2_000_000),
        ("AAAA", "text/html"),
        ("AAAA", ""),
    ],
)
def test_unsupported_media_is_left_out(data: str, mime: str) -> None:
    result = to_tool_result({"content": [{"type": "image", "data": data, "mimeType": mime}]}, 1_000)
    assert result.parts is None
    assert result.content.startswith("[image left out: ")
    assert len(result.content) < 200


def test_media_over_the_total_size_limit_is_left_out() -> None:
    image = {"type": "image", "data": "AAAA" * (MAX_MEDIA_CHARS // 8), "mimeType": "image/png"}
    result = to_tool_result({"content": [image] * 3}, 10_000)
    assert [part.kind for part in result.parts or ()] == ["image", "image", "text"]


def test_too_many_blocks_are_truncated() -> None:
    result = {"content": [{"type": "text", "text": ""}] * (MAX_BLOCKS + 1)}
    limited = limit_blocks(result)
    assert len(limited["content"]) == MAX_BLOCKS + 1
    assert to_tool_result(limited, 1_000).content == "[truncated: the first 1000 of 1001 blocks are shown]"
    assert limit_blocks(limited | {"content": limited["content"][:5]})["content"] == limited["content"][:5]
    assert limit_blocks({"content": "not a list"}) == {"content": "not a list"}


def test_deeply_nested_structured_content_is_left_out() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"x": deep}
    result = to_tool_result({"content": [], "structuredContent": deep}, 1_000)
    assert (result.value, result.content) == (None, "[structured content left out: nested too deeply]")
    while deep:  # one level at a time, or freeing it would overflow the stack
        deep = deep.pop("x")


@given(json)
def test_messages_round_trip(value: Any) -> None:
    sent = {"jsonrpc": "2.0", "result": {"x": value}}
    assert decode(encode(sent)) == sent


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000])
def test_invalid_messages_are_ignored(data: bytes) -> None:
    assert decode(data) is None


def test_invalid_characters_and_numbers_are_replaced() -> None:
    assert decode(b'{"a": "x\\ud800y", "b": NaN, "c": "\xff", "d": "\\ud83d\\ude00"}') == {
        "a": "x?y",
        "b": None,
        "c": "\ufffd",
        "d": "\U0001f600",
    }


def test_too_many_images_are_left_out() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    result = to_tool_result({"content": [image] * (MAX_MEDIA + 5)}, 10_000)
    assert sum(part.kind == "image" for part in result.parts or ()) == MAX_MEDIA


def test_structured_content_without_blocks_is_shown_as_json() -> None:
    result = to_tool_result({"content": [], "structuredContent": {"celsius": 21, "rain": None}}, 1_000)
    assert result.content == '{"celsius":21,"rain":null}'
    assert result.value == {"celsius": 21, "rain": None}


def test_binary_resources_are_described() -> None:
    block = {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA"}}
    assert to_tool_result({"content": [block]}, 1_000).content.startswith(
        "[resource: file:///a.bin, unknown type, 3 bytes"
    )
