"""JSON schemas that callers send, checked in a time that grows with their size alone.

A general validator compiles their patterns and compares each item with all others, which lets a caller stop a server.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tellback.errors import InvalidArgumentError, RequestTooLargeError
from tellback.server.sizes import values_of

MOST_NODES = 2_000
MOST_CHARACTERS = 65_536
"""How large the schemas of all tools of a request may be together."""

_TYPES = frozenset(("array", "boolean", "integer", "null", "number", "object", "string"))


def check_schemas(named: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse schemas that are too large together, and what is no schema. Patterns are taken as texts."""
    schemas = dict(named)
    try:
        for _ in values_of(schemas, MOST_NODES):
            pass
    except RequestTooLargeError:
        raise RequestTooLargeError(
            f"The parameters of all tools have more than {MOST_NODES} values, which is the limit here."
        ) from None
    size = len(json.dumps(schemas))
    if size > MOST_CHARACTERS:
        raise RequestTooLargeError(
            f"The parameters of all tools have {size} characters; {MOST_CHARACTERS} is the limit here."
        )
    for name, schema in schemas.items():
        wrong = wrong_in(schema)
        if wrong is not None:
            raise InvalidArgumentError(f"the parameters of tool {name!r} are no JSON schema: {wrong}.")


def wrong_in(schema: Any) -> str | None:
    """What is wrong with a JSON schema (2020-12), or None.

    >>> wrong_in({"type": "object", "properties": {"order": {"type": "integer"}}})
    >>> wrong_in({"properties": {"order": {"type": "int"}}})
    "'type' is array, boolean, integer, null, number, object or string, or some of them"
    """
    rest = [schema]
    while rest:
        each = rest.pop()
        if isinstance(each, bool):
            continue
        if not isinstance(each, Mapping):
            return f"{each!r:.80} stands where a schema should"
        for keyword, value in each.items():
            if keyword in _FITS and not _FITS[keyword][0](value):
                return f"{keyword!r} is {_FITS[keyword][1]}"
            rest.extend(_schemas_in(keyword, value))
    return None


def _schemas_in(keyword: str, value: Any) -> Iterable[Any]:
    if keyword in _SCHEMA:
        return (value,)
    if keyword in _SCHEMA_LISTS:
        return list(value)
    if keyword in _SCHEMA_MAPS:
        return list(value.values())
    if keyword == "dependencies":
        return [each for each in value.values() if not _is_texts(each)]
    return ()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf and value == int(value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value) and len(set(value)) == len(value)


def _is_type(value: Any) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return _is_texts(value) and bool(value) and _TYPES.issuperset(value)


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


_SCHEMA = frozenset(
    (
        *("items", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not"),
        *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    )
)
_SCHEMA_LISTS = frozenset(("prefixItems", "allOf", "anyOf", "oneOf"))
_SCHEMA_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))

_Fits = tuple[Callable[[Any], bool], str]
_TEXT: _Fits = (lambda value: isinstance(value, str), "a text")
_TRUTH: _Fits = (lambda value: isinstance(value, bool), "true or false")
_LIST: _Fits = (lambda value: isinstance(value, list), "a list")
_NUMBER: _Fits = (_is_number, "a number")
_COUNT: _Fits = (_is_count, "a whole number of at least 0")
_FITS: Mapping[str, _Fits] = {
    **dict.fromkeys(("$id", "$schema", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$comment"), _TEXT),
    **dict.fromkeys(("title", "description", "pattern", "format", "contentEncoding", "contentMediaType"), _TEXT),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"), _NUMBER),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxContains", "minContains"), _COUNT),
    **dict.fromkeys(("maxProperties", "minProperties"), _COUNT),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _TRUTH),
    **dict.fromkeys(("enum", "examples"), _LIST),
    **dict.fromkeys(_SCHEMA_LISTS, (lambda value: isinstance(value, list) and bool(value), "a list of schemas")),
    **dict.fromkeys((*_SCHEMA_MAPS, "dependencies"), (_is_map, "an object of schemas")),
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "required": (_is_texts, "a list of different texts"),
    "dependentRequired": (lambda value: _is_map(value) and all(map(_is_texts, value.values())), "an object of lists"),
    "type": (_is_type, "array, boolean, integer, null, number, object or string, or some of them"),
}
