"""Typed answers: make a JSON schema of a type, and parse the model's text into a value."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tellback.errors import ConfigurationError
from tellback.tools.schema import format_validation_error, strip_titles
from tellback.types.jsontext import dump_json, strip_code_fence


class InvalidOutput(ValueError):
    """The model's text is not a valid value; the message is written for the model."""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """The required type of an answer.

    Providers need an object at the top level, so other types are requested as `{"result": ...}` (`wrapped`). The bare
    value is accepted too.
    """

    name: str
    schema: Mapping[str, Any]
    adapter: Any
    wrapped: Any

    @classmethod
    def from_type(cls, output_type: Any) -> OutputSpec:
        """Create the spec of a pydantic model, or of any type that pydantic can validate."""
        try:
            return _build_spec(output_type)
        except TypeError:  # unhashable type forms
            return _build_spec.__wrapped__(output_type)

    def parse(self, text: str) -> Any:
        """Parse the value in the model's text; raises `InvalidOutput`."""
        from pydantic import ValidationError

        body = strip_code_fence(text)
        if not body:
            raise InvalidOutput("the answer is empty")
        if self.wrapped is not None:
            try:
                return self.wrapped.validate_json(body).result
            except ValidationError:
                pass  # it may be the bare value
        try:
            return self.adapter.validate_json(body)
        except ValidationError as error:
            raise InvalidOutput(format_validation_error(error)) from None


@functools.lru_cache(maxsize=256)
def _build_spec(output_type: Any) -> OutputSpec:
    from pydantic import TypeAdapter, create_model
    from pydantic.errors import PydanticUserError
    from pydantic_core import SchemaError

    name = getattr(output_type, "__name__", str(output_type))
    try:
        adapter: Any = TypeAdapter(output_type)
        wrapped: Any = None
        schema = strip_titles(adapter.json_schema())
        if _resolve_root(schema).get("type") != "object":
            wrapped = TypeAdapter(create_model("Answer", result=(output_type, ...)))
            schema = strip_titles(wrapped.json_schema())
    except (PydanticUserError, SchemaError) as error:
        raise ConfigurationError(
            f"output_type={name} has no JSON schema ({error}). Pass a type such as a pydantic model."
        ) from error
    return OutputSpec(name, schema, adapter, wrapped)


def _resolve_root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition that the schema refers to, or the schema itself."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    root: Mapping[str, Any] = schema.get("$defs", {}).get(name, schema)
    return root


def is_exact_schema(schema: Any) -> bool:
    """Whether a schema describes every value: it has no untyped node, and no object without named properties.

    Providers can enforce only such schemas.
    """
    if isinstance(schema, list):
        return all(map(is_exact_schema, schema))
    if not isinstance(schema, Mapping):
        return False
    if not any(key in schema for key in ("type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const")):
        return False
    if schema.get("type") == "object" and (not schema.get("properties") or schema.get("additionalProperties")):
        return False
    if schema.get("type") == "array" and "items" not in schema:
        return False
    nested = [schema[key] for key in ("anyOf", "oneOf", "allOf", "items") if key in schema]
    properties = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    return all(map(is_exact_schema, [*nested, *properties]))


def schema_instructions(schema: Mapping[str, Any]) -> str:
    """Return the prompt for a model whose provider cannot enforce a schema."""
    return f"Answer with JSON only, no other text, matching this JSON schema:\n{dump_json(schema)}"


def append_schema_instructions(system: str | None, schema: Mapping[str, Any]) -> str:
    """Append the schema's instructions to the system prompt."""
    return f"{system}\n\n{schema_instructions(schema)}" if system else schema_instructions(schema)
