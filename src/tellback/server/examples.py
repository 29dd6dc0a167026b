"""Examples for OpenAPI, made of the examples that fields have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

# What fields are called tells what they hold, where they have no example of their own.
_BY_NAME: Mapping[str, Any] = {
    "tenantId": "acme",
    "appId": "default",
    "userId": "maya",
    "createdBy": "maya",
    "conversationId": "conv_018f3c0de0a17b2c4d5e6f708192",
    "memorySpaceId": "ms_018f3c0de0a17b2c4d5e6f708192",
    "memorySpaceIds": ["ms_018f3c0de0a17b2c4d5e6f708192"],
    "bindingId": "bind_018f3c0de0a17b2c4d5e6f708192",
    "turnId": "turn_018f3c0de0a17b2c4d5e6f708192",
    "sessionId": "sess_018f3c0de0a17b2c4d5e6f708192",
    "extractionVersion": "v1",
    "model": "tellback",
    "secret": "rk_018f3c0de0a17b2c4d5e6f708192_c2VjcmV0",
}
_BY_FORMAT = {"date-time": "2026-03-01T09:00:00Z", "date": "2026-03-01", "binary": ""}
_BY_TYPE: Mapping[str, Any] = {"boolean": True, "object": {}, "null": None}
_DEEPEST = 8


class Examples:
    """Writes values that the schemas of a document describe."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas

    def request(self, schema: Schema) -> Any:
        """What one may send: fields that must be there, and those that have an example."""
        return self._value(schema, "", False, 0)

    def answer(self, schema: Schema) -> Any:
        """What one may get: all fields."""
        return self._value(schema, "", True, 0)

    def _value(self, schema: Schema, name: str, whole: bool, depth: int) -> Any:
        schema = self._found(schema)
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        for key in ("example", "const", "default"):
            if key in schema:
                return schema[key]
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self._one_of(schema[key], name, whole, depth)
        kind = schema.get("type")
        if name in _BY_NAME and isinstance(_BY_NAME[name], list if kind == "array" else str):
            return _BY_NAME[name]
        if kind == "array":
            few = range(schema.get("minItems", 1)) if depth < _DEEPEST else ()
            return [self._value(schema.get("items", {}), name, whole, depth + 1) for _ in few]
        if kind == "object" and "properties" in schema:
            return self._fields(schema, whole, depth)
        return _plain(schema)

    def _one_of(self, options: list[Schema], name: str, whole: bool, depth: int) -> Any:
        """The first option that has an example; else null where that may be, else the first."""
        for option in options:
            if self._found(option).get("examples"):
                return self._value(option, name, whole, depth)
        if any(option.get("type") == "null" for option in options):
            return None
        return self._value(options[0], name, whole, depth)

    def _fields(self, schema: Schema, whole: bool, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        return {
            name: self._value(each, name, whole, depth + 1)
            for name, each in schema["properties"].items()
            if name in required or each.get("examples") or (whole and depth < _DEEPEST)
        }

    def _found(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            named = self._schemas[schema["$ref"].rpartition("/")[2]]
            schema = {**named, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema


def _plain(schema: Schema) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number"):
        least = schema.get("minimum", schema.get("exclusiveMinimum", 0) + (1 if "exclusiveMinimum" in schema else 0))
        return max(1, least) if schema.get("maximum", 1) >= 1 else least
    if kind == "string":
        return _BY_FORMAT.get(schema.get("format", ""), "a text")
    return _BY_TYPE.get(str(kind))
