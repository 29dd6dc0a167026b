"""Examples for OpenAPI, made of the examples that fields have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

# What fields are called tells what they hold, where they have no example of their own.
_EXAMPLES_BY_NAME: Mapping[str, Any] = {
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
_EXAMPLES_BY_FORMAT = {"date-time": "2026-03-01T09:00:00Z", "date": "2026-03-01", "binary": ""}
_EXAMPLES_BY_TYPE: Mapping[str, Any] = {"boolean": True, "object": {}, "null": None}
_MAX_DEPTH = 8


class ExampleBuilder:
    """Writes values that the schemas of a document describe."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas

    def build_request(self, schema: Schema) -> Any:
        """What one may send: fields that must be there, and those that have an example."""
        return self._build(schema, "", False, 0)

    def build_response(self, schema: Schema) -> Any:
        """What one may get: all fields."""
        return self._build(schema, "", True, 0)

    def _build(self, schema: Schema, name: str, include_optional: bool, depth: int) -> Any:
        schema = self._resolve(schema)
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        for key in ("example", "const", "default"):
            if key in schema:
                return schema[key]
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self._one_of(schema[key], name, include_optional, depth)
        kind = schema.get("type")
        if name in _EXAMPLES_BY_NAME and isinstance(_EXAMPLES_BY_NAME[name], list if kind == "array" else str):
            return _EXAMPLES_BY_NAME[name]
        if kind == "array":
            count = range(schema.get("minItems", 1)) if depth < _MAX_DEPTH else ()
            return [self._build(schema.get("items", {}), name, include_optional, depth + 1) for _ in count]
        if kind == "object" and "properties" in schema:
            return self._fields(schema, include_optional, depth)
        return _default_example(schema)

    def _one_of(self, options: list[Schema], name: str, include_optional: bool, depth: int) -> Any:
        """The first option that has an example; else null where that may be, else the first."""
        for option in options:
            if self._resolve(option).get("examples"):
                return self._build(option, name, include_optional, depth)
        if any(option.get("type") == "null" for option in options):
            return None
        return self._build(options[0], name, include_optional, depth)

    def _fields(self, schema: Schema, include_optional: bool, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        return {
            name: self._build(each, name, include_optional, depth + 1)
            for name, each in schema["properties"].items()
            if name in required or each.get("examples") or (include_optional and depth < _MAX_DEPTH)
        }

    def _resolve(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            target = self._schemas[schema["$ref"].rpartition("/")[2]]
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema


def _default_example(schema: Schema) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number"):
        minimum = schema.get("minimum", schema.get("exclusiveMinimum", 0) + (1 if "exclusiveMinimum" in schema else 0))
        return max(1, minimum) if schema.get("maximum", 1) >= 1 else minimum
    if kind == "string":
        return _EXAMPLES_BY_FORMAT.get(schema.get("format", ""), "a text")
    return _EXAMPLES_BY_TYPE.get(str(kind))
