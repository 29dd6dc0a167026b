"""JSON schemas that callers send, checked in a time that grows with their size alone.

A general validator compiles their patterns and compares each item with all others, which lets a caller stop a server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tellback.errors import InvalidArgumentError, RequestTooLargeError
from tellback.server.sizes import iter_values

MAX_SCHEMA_NODES = 2_000
MAX_SCHEMA_CHARACTERS = 65_536
"""How large the schemas of all tools of a request may be together."""

_JSON_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))


def validate_schemas(named_schemas: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse schemas that are too large together, and what is no schema. Patterns are taken as texts."""
    schemas = dict(named_schemas)
    try:
        for _ in iter_values(schemas, MAX_SCHEMA_NODES):
            pass
    except RequestTooLargeError:
        raise RequestTooLargeError(
            f"The parameters of all tools have more than {MAX_SCHEMA_NODES} values, which is the limit here."
        ) from None
    size = len(json.dumps(schemas))
    if size > MAX_SCHEMA_CHARACTERS:
        raise RequestTooLargeError(
            f"The parameters of all tools have {size} characters; {MAX_SCHEMA_CHARACTERS} is the limit here."
        )
    for name, schema in schemas.items():
        error = find_schema_error(schema)
        if error is not None:
            raise InvalidArgumentError(f"the parameters of tool {name!r} are no JSON schema: {error}.")


def find_schema_error(schema: Any) -> str | None:
    """What is wrong with a JSON schema (2020-12), or None.

    >>> find_schema_error({"type": "object", "properties": {"order": {"type": "integer"}}})
    >>> find_schema_error({"properties": {"order": {"type": "int"}}})
    "'type' is array, boolean, integer, null, number, object or string, or some of them"
    """
    pending = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, bool):
            continue
        if not isinstance(node, Mapping):
            return f"{node!r:.80} stands where a schema should"
        for keyword, value in node.items():
            if keyword in _KEYWORD_RULES and not _KEYWORD_RULES[keyword][0](value):
                return f"{keyword!r} is {_KEYWORD_RULES[keyword][1]}"
            pending.extend(_subschemas(keyword, value))
    return None


def _subschemas(keyword: str, value: Any) -> Iterable[Any]:
    if keyword in _SCHEMA_KEYWORDS:
        return (value,)
    if keyword in _SCHEMA_LIST_KEYWORDS:
        return list(value)
    if keyword in _SCHEMA_MAP_KEYWORDS:
        return list(value.values())
    if keyword == "dependencies":
        return [each for each in value.values() if not _is_unique_strings(each)]
    return ()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf and value == int(value)


def _is_unique_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in _JSON_TYPES
    return _is_unique_strings(value) and bool(value) and _JSON_TYPES.issuperset(value)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


_SCHEMA_KEYWORDS = frozenset(
    (
        *("items", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not"),
        *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    )
)
_SCHEMA_LIST_KEYWORDS = frozenset(("prefixItems", "allOf", "anyOf", "oneOf"))
_SCHEMA_MAP_KEYWORDS = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))

_KeywordRule = tuple[Callable[[Any], bool], str]
_STRING: _KeywordRule = (lambda value: isinstance(value, str), "a text")
_BOOLEAN: _KeywordRule = (lambda value: isinstance(value, bool), "true or false")
_LIST: _KeywordRule = (lambda value: isinstance(value, list), "a list")
_NUMBER: _KeywordRule = (_is_number, "a number")
_COUNT: _KeywordRule = (_is_count, "a whole number of at least 0")
_KEYWORD_RULES: Mapping[str, _KeywordRule] = {
    **dict.fromkeys(("$id", "$schema", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$comment"), _STRING),
    **dict.fromkeys(("title", "description", "pattern", "format", "contentEncoding", "contentMediaType"), _STRING),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"), _NUMBER),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains"), _COUNT),
    **dict.fromkeys(("maxProperties", "minProperties"), _COUNT),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _BOOLEAN),
    **dict.fromkeys(("enum", "examples"), _LIST),
    **dict.fromkeys(
        _SCHEMA_LIST_KEYWORDS, (lambda value: isinstance(value, list) and bool(value), "a list of schemas")
    ),
    **dict.fromkeys((*_SCHEMA_MAP_KEYWORDS, "dependencies"), (_is_mapping, "an object of schemas")),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "required": (_is_unique_strings, "a list of different texts"),
    "dependentRequired": (
        lambda value: _is_mapping(value) and all(map(_is_unique_strings, value.values())),
        "an object of lists",
    ),
    "type": (_is_type, "array, boolean, integer, null, number, object or string, or some of them"),
}
