"""What comes in is taken for what it is: a text like a number is a text."""

from __future__ import annotations

from typing import Any

# The parts of a core schema that hold others; what is in `metadata` and `default` is none.
_INSIDE = {"schema", "choices", "items_schema", "keys_schema", "values_schema", "definitions"}


def strict(schema: Any) -> Any:
    """A pydantic core schema that takes no texts for numbers or truth, nor truth for numbers."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(strict, schema))
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(value) if name in _INSIDE else value for name, value in schema.items()}
    if isinstance(schema.get("fields"), dict):
        made["fields"] = {name: strict(field) for name, field in schema["fields"].items()}
    return {**made, "strict": True} if schema.get("type") in ("int", "float", "bool") else made
