"""Models of what tools take and give, and the JSON schemas that clients see of them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, SkipJsonSchema
from pydantic_core import core_schema

from tellback.tools.schema import InvalidInput

MAX_PROBLEMS = 5

OmittedNone = SkipJsonSchema[None]
"""None that schemas do not speak of: some models write null for what they leave out, and answers leave it out."""


class ToolInput(BaseModel):
    """What a tool is called with. Names that it does not know are refused, null is the same as leaving it out."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolOutput(BaseModel):
    """What a tool gives: structured, in camelCase, and as a text to read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    def to_text(self) -> str:
        """The answer as a text."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON; what is not known is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def build_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, without what a reader learns nothing from."""
    schema = model.model_json_schema(schema_generator=_PlainJsonSchema)
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def parse_arguments(model: type[ToolInput], arguments: dict[str, Any] | None) -> ToolInput:
    """A tool's arguments, checked; `InvalidInput` says what is wrong with them."""
    present = {name: value for name, value in (arguments or {}).items() if value is not None}
    try:
        return model.model_validate(present)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [problem for problem in found if problem["type"] != "none_required"]
        sentences = [
            f"{_argument_name(problem['loc'])}: {_problem_text(problem['msg'])}" for problem in problems[:MAX_PROBLEMS]
        ]
        if len(problems) > MAX_PROBLEMS:
            sentences.append(f"and {len(problems) - MAX_PROBLEMS} more")
        raise InvalidInput("; ".join(sentences)) from None


def _argument_name(location: tuple[int | str, ...]) -> str:
    """The argument it is about, which may have any name."""
    return ascii(str(location[0])[:80])[1:-1] if location else "arguments"


def _problem_text(text: str) -> str:
    if text == "Extra inputs are not permitted":
        return "there is no such argument"
    return text[:300]


class _PlainJsonSchema(GenerateJsonSchema):
    """Schemas as a person would write them: no titles made of names, no defaults that are null."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)
