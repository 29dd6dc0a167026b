"""What comes in is taken for what it is: a text like a number is a text."""

from __future__ import annotations

from typing import Any

# The parts of a core schema that hold others; what is in `metadata` and `default` is none.
_NESTED_KEYS = {"schema", "choices", "items_schema", "keys_schema", "values_schema", "definitions"}


def make_strict(schema: Any) -> Any:
    """A pydantic core schema that takes no texts for numbers or truth, nor truth for numbers."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(make_strict, schema))
    if not isinstance(schema, dict):
        return schema
    result = {name: make_strict(value) if name in _NESTED_KEYS else value for name, value in schema.items()}
    if isinstance(schema.get("fields"), dict):
        result["fields"] = {name: make_strict(field) for name, field in schema["fields"].items()}
    return {**result, "strict": True} if schema.get("type") in ("int", "float", "bool") else result
