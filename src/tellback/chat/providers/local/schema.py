"""JSON schemas in the dialect that llama.cpp can hold a model to.

A schema it cannot read holds nothing at all, and llama.cpp does not say so. So what it does not know is left out here,
and the rest of the schema still counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

GUIDANCE = {"x-guidance": {"whitespace_flexible": False, "lenient": True, "coerce_one_of": True}}
"""No blanks between the tokens, which small models write without end; keywords it does not know are passed over."""

_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_SCHEMAS = ("items", "additionalProperties", "contains")
_IGNORED_KEYWORDS = (
    "title",
    "description",
    "default",
    "examples",
    "discriminator",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$id",
)
_NON_REGULAR = re.compile(r"\(\?[=!<]|\\[1-9]")


def to_llama_schema(schema: Mapping[str, Any], *, ref_prefix: str = "") -> dict[str, Any]:
    """The schema without what cannot be held to. Its references start at `place`, where another schema takes it in.

    >>> to_llama_schema({"type": "string", "pattern": "(?=x)", "maxLength": 3})
    {'type': 'string', 'maxLength': 3}
    """
    converted: dict[str, Any] = _SchemaConverter(schema, ref_prefix).convert(schema)
    return converted


class _SchemaConverter:
    def __init__(self, root: Mapping[str, Any], ref_prefix: str) -> None:
        self._root = root
        self._ref_prefix = ref_prefix

    def convert(self, node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        converted: dict[str, Any] = {}
        for name, value in node.items():
            if name in _SCHEMA_MAPS and isinstance(value, Mapping):
                converted[name] = {key: self.convert(inner) for key, inner in value.items()}
            elif name in _SCHEMA_LISTS and isinstance(value, list):
                converted[name] = [self.convert(inner) for inner in value]
            elif name in _SINGLE_SCHEMAS:
                converted[name] = self.convert(value)
            elif name == "$ref":
                if self._resolves(value):
                    converted[name] = f"#{self._ref_prefix}{value[1:]}"
            elif name not in _IGNORED_KEYWORDS and _is_supported(name, value):
                converted[name] = value
        return converted

    def _resolves(self, ref: Any) -> bool:
        if not isinstance(ref, str) or not ref.startswith("#") or ref[1:2] not in ("", "/"):
            return False
        node: Any = self._root
        for step in ref[2:].split("/") if ref[1:] else ():
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                return False
            node = node[key]
        return isinstance(node, Mapping)


def _is_supported(name: str, value: Any) -> bool:
    if name == "type":
        types = value if isinstance(value, list) else [value]
        return bool(types) and all(isinstance(each, str) and each in _TYPES for each in types)
    if name == "pattern":
        return isinstance(value, str) and _is_regular(value)
    return True


def _is_regular(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return _NON_REGULAR.search(pattern) is None
