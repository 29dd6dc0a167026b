"""JSON schemas (2020-12): find errors, iterate over subschemas, and resolve references.

Checking takes time linear in the size of the schema: a general validator would also compile its patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

JSON_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))
SCHEMA_KEYWORDS = frozenset(
    (
        *("items", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not"),
        *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    )
)
SCHEMA_LIST_KEYWORDS = frozenset(("prefixItems", "allOf", "anyOf", "oneOf"))
SCHEMA_MAP_KEYWORDS = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))


def find_schema_error(schema: Any) -> str | None:
    """Return the first error of a JSON schema (2020-12), or None.

    >>> find_schema_error({"type": "object", "properties": {"order": {"type": "integer"}}})
    >>> find_schema_error({"properties": {"order": {"type": "int"}}})
    "'type' must be array, boolean, integer, null, number, object or string, or a list of these"
    """
    pending = [schema]
    while pending:
        node = pending.pop()
        error = find_node_error(node)
        if error is not None:
            return error
        pending.extend(subschemas(node))
    return None


def find_node_error(node: Any) -> str | None:
    """Return the first error of a schema, or None. Its subschemas are not checked."""
    if isinstance(node, bool):
        return None
    if not isinstance(node, Mapping):
        return f"{node!r:.80} is not a schema"
    for keyword, value in node.items():
        if keyword in _KEYWORD_RULES and not _KEYWORD_RULES[keyword][0](value):
            return f"{keyword!r} must be {_KEYWORD_RULES[keyword][1]}"
    return None


def subschemas(node: Any) -> Iterator[Any]:
    """Yield the direct subschemas of a schema for which `find_node_error` returns None."""
    for keyword, value in node.items() if isinstance(node, Mapping) else ():
        if keyword in SCHEMA_KEYWORDS:
            yield value
        elif keyword in SCHEMA_LIST_KEYWORDS:
            yield from value
        elif keyword in SCHEMA_MAP_KEYWORDS:
            yield from value.values()
        elif keyword == "dependencies":
            yield from (each for each in value.values() if not _is_unique_strings(each))


def resolve_reference(ref: Any, root: Any) -> Any:
    """Return the schema that a reference within `root` points to, or None. Nothing is fetched.

    >>> resolve_reference("#/$defs/day", {"$defs": {"day": {"type": "string"}}})
    {'type': 'string'}
    """
    if not isinstance(ref, str) or not ref.startswith("#") or ref[1:2] not in ("", "/"):
        return None
    node = root
    for step in unquote(ref[1:]).split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and name in node:
            node = node[name]
        elif isinstance(node, list) and name.isdecimal() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node if isinstance(node, Mapping | bool) else None


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf and value == int(value)


def _is_unique_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in JSON_TYPES
    return _is_unique_strings(value) and bool(value) and JSON_TYPES.issuperset(value)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


_KeywordRule = tuple[Callable[[Any], bool], str]
_STRING: _KeywordRule = (lambda value: isinstance(value, str), "a string")
_BOOLEAN: _KeywordRule = (lambda value: isinstance(value, bool), "true or false")
_LIST: _KeywordRule = (lambda value: isinstance(value, list), "a list")
_NUMBER: _KeywordRule = (_is_number, "a number")
_COUNT: _KeywordRule = (_is_count, "an integer of at least 0")
_KEYWORD_RULES: Mapping[str, _KeywordRule] = {
    **dict.fromkeys(("$id", "$schema", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$comment"), _STRING),
    **dict.fromkeys(("title", "description", "pattern", "format", "contentEncoding", "contentMediaType"), _STRING),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"), _NUMBER),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains"), _COUNT),
    **dict.fromkeys(("maxProperties", "minProperties"), _COUNT),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _BOOLEAN),
    **dict.fromkeys(("enum", "examples"), _LIST),
    **dict.fromkeys(SCHEMA_LIST_KEYWORDS, (lambda value: isinstance(value, list) and bool(value), "a list of schemas")),
    **dict.fromkeys((*SCHEMA_MAP_KEYWORDS, "dependencies"), (_is_mapping, "an object of schemas")),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "required": (_is_unique_strings, "a list of different strings"),
    "dependentRequired": (
        lambda value: _is_mapping(value) and all(map(_is_unique_strings, value.values())),
        "an object of lists",
    ),
    "type": (_is_type, "array, boolean, integer, null, number, object or string, or a list of these"),
}
