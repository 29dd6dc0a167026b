from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tellback.agent.definitions.gather_schema import GatherSchema
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.errors import FlowError

PLACE = "route 'Book a flight'"


def schema_of(field: Mapping[str, Any], **schema_fields: Any) -> GatherSchema:
    return GatherSchema.from_definition({"type": "object", "properties": {"x": field}, **schema_fields}, PLACE)


def error_text(field: Mapping[str, Any], value: Any, **schema_fields: Any) -> str:
    with pytest.raises(InvalidValue) as caught:
        schema_of(field, **schema_fields).check("x", value)
    return str(caught.value)


INTEGER = {"type": "integer", "minimum": 1, "maximum": 2000}
NUMBER = {"type": "number"}
TEXT = {"type": "string"}
DATE = {"type": "string", "format": "date"}
MOMENT = {"type": "string", "format": "date-time"}
TIME = {"type": "string", "format": "time"}
CABIN = {"enum": ["Economy", "Business", 1, True]}
ADDRESS = {
    "type": "object",
    "properties": {"street": TEXT, "number": {"type": "integer"}, "unit": TEXT},
    "required": ["street", "number"],
    "additionalProperties": False,
}
DEFINED = {"$defs": {"address": ADDRESS, "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}


@pytest.mark.parametrize(
    ("field", "raw", "expected"),
    [
        (TEXT, "  Rome \n", "Rome"),
        (TEXT, "Ro\x00me\ud800", "Rome"),
        (INTEGER, 2, 2),
        (INTEGER, 2.0, 2),
        (INTEGER, " 2 ", 2),
        (INTEGER, "2.0", 2),
        (INTEGER, "+2", 2),
        (INTEGER, "1,500", 1500),
        (INTEGER, "٣", 3),
        (NUMBER, "2.5", 2.5),
        (NUMBER, "-.5", -0.5),
        (NUMBER, "1,234,567", 1234567),
        (NUMBER, "1,500.50", 1500.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, " FALSE", False),
        (CABIN, " economy", "Economy"),
        (CABIN, "BUSINESS ", "Business"),
        (CABIN, "1", 1),
        (CABIN, "true", True),
        ({"const": "Olé"}, "ole", "Olé"),
        ({"const": 3}, "3", 3),
        (DATE, "2026-12-01", "2026-12-01"),
        (DATE, "2026/12/1", "2026-12-01"),
        (DATE, "2026-12-01T23:30:00+02:00", "2026-12-01"),
        (DATE, "20261201", "2026-12-01"),
        (MOMENT, "2026-12-01", "2026-12-01T00:00:00"),
        (MOMENT, "2026-12-01T10:00:00Z", "2026-12-01T10:00:00+00:00"),
        (MOMENT, "2026/12/01 9:30", "2026-12-01T09:30:00"),
        (MOMENT, "2026-12-01 12:15 am", "2026-12-01T00:15:00"),
        (TIME, "9:30", "09:30:00"),
        (TIME, "9:30 p.m.", "21:30:00"),
        (TIME, "12:00PM", "12:00:00"),
        (TIME, "09:30:15.250Z", "09:30:15.250000+00:00"),
        ({"type": "array", "items": TEXT}, "Rome", ["Rome"]),
        ({"type": "array", "items": INTEGER}, ["1", 2.0], [1, 2]),
        ({"type": "array", "items": TEXT}, [], []),
        ({"type": "array", "prefixItems": [TEXT], "items": INTEGER}, [" a", "1"], ["a", 1]),
        ({"type": ["string", "null"]}, None, None),
        ({"type": ["integer", "null"]}, "4", 4),
        ({"type": ["integer", "string"]}, "4", "4"),
        ({"anyOf": [DATE, {"type": "null"}]}, "2026/12/01", "2026-12-01"),
        ({"oneOf": [INTEGER, DATE]}, "2026/12/01", "2026-12-01"),
        ({"anyOf": [INTEGER, {"type": "boolean"}]}, True, True),
        ({"anyOf": [{"type": "boolean"}, INTEGER]}, 1, 1),
        ({"enum": ["a", None]}, None, None),
        (ADDRESS, {"street": " Via Roma", "number": "3", "unit": None}, {"street": "Via Roma", "number": 3}),
        ({"$ref": "#/$defs/address"}, {"street": "a", "number": "3"}, {"street": "a", "number": 3}),
        ({"allOf": [{"$ref": "#/$defs/tree"}]}, [[], [[]]], [[], [[]]]),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": "1"}, {"a": 1}),
        ({}, " x ", "x"),
        ({}, {"a": [1, 2.5, "b"]}, {"a": [1, 2.5, "b"]}),
        (True, 3, 3),
    ],
)
def test_values_are_parsed_as_people_write_them(field: Any, raw: Any, expected: Any) -> None:
    checked = schema_of(field, **DEFINED).check("x", raw)
    assert checked == expected
    assert type(checked) is type(expected)


@pytest.mark.parametrize(
    ("field", "raw", "reason"),
    [
        ({"type": "integer", "maximum": 9}, 12, "12 is greater than the maximum of 9"),
        (INTEGER, 2.5, "2.5 is not a whole number"),
        (INTEGER, "2.5", "2.5 is not a whole number"),
        (INTEGER, True, "true is not a whole number"),
        (INTEGER, "two", "'two' is not a whole number"),
        (INTEGER, "2.000", "'2.000' is ambiguous: give the number without separators"),
        (INTEGER, "1,50", "'1,50' is not a whole number"),
        (NUMBER, "1,500", "'1,500' is ambiguous: give the number without separators"),
        (NUMBER, "nan", "'nan' is not a number"),
        (NUMBER, "inf", "'inf' is not a number"),
        (NUMBER, float("nan"), "is not a finite number"),
        ({}, [float("inf")], "is not a finite number"),
        pytest.param(INTEGER, 10**5000, "is too large a number", id="5000 digits"),
        (NUMBER, [], "[] is not a number"),
        ({"type": "boolean"}, 1, "1 is neither yes nor no"),
        ({"type": "boolean"}, "maybe", "'maybe' is neither yes nor no"),
        (TEXT, "  ", "is empty"),
        (TEXT, 1.5, "1.5 is not a string"),
        (TEXT, None, "is null, which is not a value"),
        ({}, None, "is null, which is not a value"),
        ({"enum": ["Economy", "Business"]}, "first", "'first' is not one of 'Economy', 'Business'"),
        ({"enum": [0, 1]}, True, "true is not one of 0, 1"),
        ({"enum": ["a", "A"]}, " Á", "'Á' is not one of 'a', 'A'"),
        ({"const": "a"}, "b", "'b' is not 'a'"),
        (DATE, "03/04/2026", "'03/04/2026' is ambiguous: give the date as YYYY-MM-DD"),
        (DATE, "3.4.26", "'3.4.26' is ambiguous: give the date as YYYY-MM-DD"),
        (DATE, "25/13/2026", "'25/13/2026' is not a date: give it as YYYY-MM-DD"),
        (DATE, "2026-02-30", "'2026-02-30' is not a date: give it as YYYY-MM-DD"),
        (DATE, "tomorrow", "'tomorrow' is not a date: give it as YYYY-MM-DD"),
        (DATE, 20261201, "20261201 is not a date: give it as YYYY-MM-DD"),
        (MOMENT, "2026-12-01T25:00", "'2026-12-01T25:00' is not a date: give it as YYYY-MM-DDTHH:MM"),
        (TIME, "noon", "'noon' is not a time: give it as HH:MM"),
        (TIME, "13:00 pm", "'13:00 pm' is not a time: give it as HH:MM"),
        (TIME, 9, "9 is not a time: give it as HH:MM"),
        ({"type": "array", "items": INTEGER}, [1, "b"], "item 2: 'b' is not a whole number"),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "many", "'many' is not a whole number"),
        ({"anyOf": [INTEGER, {"type": "null"}]}, 3000, "3000 is greater than the maximum of 2000"),
        ({"anyOf": [INTEGER, DATE]}, True, "true is not a whole number, and true is not a date: give it as YYYY-MM-DD"),
        ({"type": "null"}, 1, "1 is not null"),
        (ADDRESS, {"street": "", "number": 3}, "street: is empty"),
        (ADDRESS, {"street": "a"}, "'number' is a required property"),
        (ADDRESS, {"street": "a", "number": None}, "'number' is a required property"),
        (ADDRESS, "Via Roma 3", "'Via Roma 3' is not an object"),
        ({"type": "object", "properties": {"n": {"maximum": 9}}}, {"n": 12}, "n: 12 is greater than the maximum of 9"),
        ({"type": "string", "format": "email"}, "me", "'me' is not a 'email'"),
        ({"$ref": "#/$defs/address"}, {"street": "a", "number": "x"}, "number: 'x' is not a whole number"),
        ({}, object(), "is of type object, which JSON does not support"),
    ],
)
def test_a_value_that_does_not_fit_is_rejected_with_a_reason(field: Mapping[str, Any], raw: Any, reason: str) -> None:
    assert error_text(field, raw, **DEFINED) == reason


def test_a_value_that_contains_itself_is_rejected() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert error_text({}, endless) == "is nested too deeply"


def test_a_long_value_is_truncated_in_the_message() -> None:
    assert len(error_text(INTEGER, "x" * 10_000)) < 150
    assert len(error_text({"type": "string", "maxLength": 3}, "x" * 10_000)) <= 300


def test_an_unknown_field_is_rejected() -> None:
    with pytest.raises(InvalidValue, match="is not a field of gather_schema; its fields: x"):
        schema_of(TEXT).check("y", 1)
    with pytest.raises(InvalidValue, match="its fields: none"):
        GatherSchema.from_definition(None, PLACE).check("y", 1)


@pytest.mark.parametrize(("required", "needed"), [(None, [True, True]), (["a"], [True, False]), ([], [False, False])])
def test_required_lists_the_required_fields_and_defaults_to_all(required: Any, needed: list[bool]) -> None:
    extra = {} if required is None else {"required": required}
    schema = GatherSchema.from_definition({"type": "object", "properties": {"a": {}, "b": {}}, **extra}, PLACE)
    assert [field.required for field in schema.fields.values()] == needed


def test_titles_are_omitted_but_a_field_may_be_called_title() -> None:
    definition = {"type": "object", "properties": {"title": {"type": "string", "title": "Title"}}}
    assert GatherSchema.from_definition(definition, PLACE).fields["title"].schema == {"type": "string"}


def test_definitions_in_the_older_spelling_are_supported() -> None:
    schema = schema_of({"$ref": "#/definitions/address"}, definitions={"address": {"title": "A", **ADDRESS}})
    assert schema.fields["x"].schema == {"$ref": "#/$defs/address"}
    assert schema.definitions == {"address": ADDRESS}
    assert schema.check("x", {"street": "a", "number": "1"}) == {"street": "a", "number": 1}


def test_a_read_only_schema_is_accepted_and_not_changed() -> None:
    definition = MappingProxyType(
        {"type": "object", "properties": MappingProxyType({"x": MappingProxyType(dict(INTEGER))})}
    )
    assert GatherSchema.from_definition(definition, PLACE).check("x", "2") == 2


def test_values_of_a_json_schema_stay_json() -> None:
    schema = schema_of(DATE)
    data = {"x": "2026-12-01", "other": 3}
    assert schema.restore(data) == schema.plain(data) == schema.typed(data) == data


@pytest.mark.parametrize(
    ("definition", "pattern"),
    [
        ("Flight", "must be a JSON schema or a pydantic model class, got 'Flight'"),
        (dict, "must be a JSON schema or a pydantic model class"),
        ({"type": "array"}, 'the form {"type": "object"'),
        ({}, 'the form {"type": "object"'),
        ({"destination": {"type": "string"}}, 'the form {"type": "object"'),
        ({"$ref": "#/$defs/gone"}, 'the form {"type": "object"'),
        ({"type": "object", "properties": {"x": {"type": "txt"}}}, "not a valid JSON schema: properties.x.type: 'txt'"),
        ({"type": "object", "properties": {"x": {"type": "string", "pattern": "("}}}, "not a valid JSON schema"),
        ({"type": "object", "properties": {"": {}}}, "a field name of gather_schema must be a non-empty string"),
        ({"type": "object", "properties": {" ": {}}}, "a field name of gather_schema must be a non-empty string"),
        ({"type": "object", "properties": {1: {}}}, "the key 1 is not a string"),
        ({"type": "object", "properties": {"x": False}}, "no value fits it"),
        ({"type": "object", "properties": {"x": {}}, "required": ["y"]}, "requires 'y'"),
        ({"type": "object", "properties": {"x": {"$ref": "https://elsewhere"}}}, "refers to 'https://elsewhere'"),
        ({"type": "object", "properties": {"x": {"items": {"$ref": "#/$defs/a"}}}}, "refers to '#/\\$defs/a'"),
        ({"type": "object", "properties": {"x": {"$id": "https://elsewhere"}}}, "has \\$id"),
    ],
)
def test_an_unusable_schema_raises_flow_error_with_its_place(definition: Any, pattern: str) -> None:
    with pytest.raises(FlowError, match=pattern) as caught:
        GatherSchema.from_definition(definition, PLACE)
    assert caught.value.place == PLACE


def test_a_schema_that_contains_itself_is_rejected() -> None:
    endless: dict[str, Any] = {"type": "object"}
    endless["properties"] = {"x": endless}
    with pytest.raises(FlowError, match="contains itself"):
        GatherSchema.from_definition(endless, PLACE)
