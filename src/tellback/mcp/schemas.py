"""Models of what tools take and give, and the JSON schemas that clients see of them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, SkipJsonSchema
from pydantic_core import core_schema

from tellback.tools.schema import InvalidInput

MOST_PROBLEMS = 5

Nothing = SkipJsonSchema[None]
"""None that schemas do not speak of: some models write null for what they leave out, and answers leave it out."""


class Asked(BaseModel):
    """What a tool is called with. Names that it does not know are refused, null is the same as leaving it out."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Answer(BaseModel):
    """What a tool gives: structured, in camelCase, and as a text to read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    def written(self) -> str:
        """The answer as a text."""
        raise NotImplementedError

    def structured(self) -> dict[str, Any]:
        """The answer as JSON; what is not known is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, without what a reader learns nothing from."""
    schema = model.model_json_schema(schema_generator=_Plain)
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def read(model: type[Asked], arguments: dict[str, Any] | None) -> Asked:
    """A tool's arguments, checked; `InvalidInput` says what is wrong with them."""
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [problem for problem in found if problem["type"] != "none_required"]
        told = [f"{_place(problem['loc'])}: {_sentence(problem['msg'])}" for problem in problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            told.append(f"and {len(problems) - MOST_PROBLEMS} more")
        raise InvalidInput("; ".join(told)) from None


def _place(where: tuple[int | str, ...]) -> str:
    """The argument it is about, which may have any name."""
    return ascii(str(where[0])[:80])[1:-1] if where else "arguments"


def _sentence(text: str) -> str:
    if text == "Extra inputs are not permitted":
        return "there is no such argument"
    return text[:300]


class _Plain(GenerateJsonSchema):
    """Schemas as a person would write them: no titles made of names, no defaults that are null."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)
