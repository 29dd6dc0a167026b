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
_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties", "contains")
_UNTOLD = ("title", "description", "default", "examples", "discriminator", "deprecated", "readOnly", "writeOnly", "$id")
_BEYOND_REGULAR = re.compile(r"\(\?[=!<]|\\[1-9]")


def held_to(schema: Mapping[str, Any], *, place: str = "") -> dict[str, Any]:
    """The schema without what cannot be held to. Its references start at `place`, where another schema takes it in.

    >>> held_to({"type": "string", "pattern": "(?=x)", "maxLength": 3})
    {'type': 'string', 'maxLength': 3}
    """
    held: dict[str, Any] = _Held(schema, place).read(schema)
    return held


class _Held:
    def __init__(self, root: Mapping[str, Any], place: str) -> None:
        self._root = root
        self._place = place

    def read(self, node: Any) -> Any:
        if not isinstance(node, Mapping):
            return node
        made: dict[str, Any] = {}
        for name, value in node.items():
            if name in _OF_SCHEMAS and isinstance(value, Mapping):
                made[name] = {key: self.read(inner) for key, inner in value.items()}
            elif name in _LISTS and isinstance(value, list):
                made[name] = [self.read(inner) for inner in value]
            elif name in _ONE:
                made[name] = self.read(value)
            elif name == "$ref":
                if self._leads_somewhere(value):
                    made[name] = f"#{self._place}{value[1:]}"
            elif name not in _UNTOLD and _can_be_held(name, value):
                made[name] = value
        return made

    def _leads_somewhere(self, ref: Any) -> bool:
        if not isinstance(ref, str) or not ref.startswith("#") or ref[1:2] not in ("", "/"):
            return False
        node: Any = self._root
        for step in ref[2:].split("/") if ref[1:] else ():
            key = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                return False
            node = node[key]
        return isinstance(node, Mapping)


def _can_be_held(name: str, value: Any) -> bool:
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
    return _BEYOND_REGULAR.search(pattern) is None
