"""What holds for anything a server may send."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.tools.mcp.listing import MAX_DESCRIPTION, clean_page
from recollect.tools.mcp.names import legal_names
from recollect.tools.mcp.results import MAX_MEDIA, tool_result
from recollect.tools.mcp.schemas import UnusableSchema, binder_for, usable_schema
from recollect.tools.schema import InvalidInput

keys = st.sampled_from(
    ["type", "properties", "items", "$ref", "allOf", "anyOf", "$defs", "not", "pattern", "required", "x", "$id"]
)
refs = st.sampled_from(
    ["#", "#/$defs/x", "#/properties/x", "#/items/0", "http://192.0.2.1/x", "#x", "object", "x(", ""]
)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | refs | st.text(max_size=5),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(keys | st.text(max_size=4), children, max_size=4),
    max_leaves=20,
)
schemas = st.dictionaries(keys, json, max_size=5).map(lambda schema: {**schema, "type": "object"})


@given(st.lists(st.text(min_size=1, max_size=90), unique=True, max_size=30), st.sampled_from([None, "files"]))
def test_names_are_legal_different_and_always_the_same(names: list[str], prefix: str | None) -> None:
    found = legal_names(names, prefix)
    assert list(found) == names
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found.values())
    assert len(set(found.values())) == len(names)
    assert legal_names(names[::-1], prefix) == found


def test_names_that_would_fall_together_are_told_apart() -> None:
    found = legal_names(["a.b", "a_b", "a/b"])
    assert found["a_b"] == "a_b"
    assert len(set(found.values())) == 3
    assert len(legal_names(["x" * 200])["x" * 200]) == 64


@settings(deadline=None)
@given(schemas | json, json)
def test_a_schema_is_refused_or_can_check_any_input(schema: Any, value: Any) -> None:
    try:
        usable = usable_schema(schema)
    except UnusableSchema:
        return
    assert usable["type"] == "object"
    try:
        args, kwargs = binder_for(usable)({"x": value})
    except InvalidInput:
        return
    assert (args, kwargs) == ([], {"x": value})


@settings(deadline=None)
@given(st.lists(json | st.fixed_dictionaries({"name": json, "inputSchema": schemas, "description": json}), max_size=5))
def test_every_listed_tool_is_kept_or_refused(tools: list[Any]) -> None:
    page, refused = clean_page({"tools": tools, "nextCursor": "2"})
    assert len(page["tools"]) + len(refused) == len(tools)
    assert page["nextCursor"] == "2"
    assert all(len(tool["description"]) <= MAX_DESCRIPTION for tool in page["tools"])


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#"}, "never ends"),
        ({"anyOf": [{"not": {"$ref": "#/$defs/a"}}], "$defs": {"a": {"$ref": "#"}}}, "never ends"),
        ({"properties": {"x": {"$ref": "file:///etc/passwd"}}}, "outside itself"),
        ({"$defs": {"a": {"$ref": "https://example.com/a"}}}, "outside itself"),
        ({"x-more": {"a": {"$ref": "https://example.com/a"}}, "$ref": "#/x-more/a"}, "outside itself"),
        ({"properties": {"x": {"$id": "http://example.com", "$ref": "#/a"}}}, r"\$id"),
        ({"properties": {"x": {"$ref": "#/properties/y"}}}, "does not hold"),
    ],
)
def test_references_that_cannot_be_followed_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(UnusableSchema, match=reason):
        usable_schema(schema)


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = usable_schema({"properties": {"$ref": {"type": "string"}, "default": {"enum": [{"$ref": "http://x"}]}}})
    with pytest.raises(InvalidInput):
        binder_for(schema)({"$ref": 3})


def test_definitions_of_the_older_drafts_are_followed() -> None:
    schema = usable_schema(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"x": {"$ref": "#/definitions/size"}},
            "definitions": {"size": {"type": "integer", "minimum": 1}},
        }
    )
    assert "$schema" not in schema
    with pytest.raises(InvalidInput, match="minimum"):
        binder_for(schema)({"x": 0})


@given(st.lists(st.text("ab ", max_size=50), max_size=8), st.integers(1, 100))
def test_no_more_text_is_shown_than_allowed(texts: list[str], limit: int) -> None:
    result = tool_result({"content": [{"type": "text", "text": text} for text in texts]}, limit)
    whole, total = "".join(texts), sum(map(len, texts))
    note = f"[cut: the first {limit} of {total} characters are shown]"
    assert result.content.endswith(note) == (total > limit)
    assert result.content.removesuffix(note).replace("\n\n", "") == whole[:limit].replace("\n\n", "")
    assert result.parts is None


def test_too_many_images_are_left_out() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    result = tool_result({"content": [image] * (MAX_MEDIA + 5)}, 10_000)
    assert sum(part.kind == "image" for part in result.parts or ()) == MAX_MEDIA


def test_structured_content_alone_is_shown_as_json() -> None:
    result = tool_result({"content": [], "structuredContent": {"celsius": 21, "rain": None}}, 1_000)
    assert result.content == '{"celsius":21,"rain":null}'
    assert result.value == {"celsius": 21, "rain": None}


def test_resources_that_are_not_text_are_named() -> None:
    block = {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA"}}
    assert tool_result({"content": [block]}, 1_000).content.startswith(
        "[resource: file:///a.bin, unknown type, 3 bytes"
    )
