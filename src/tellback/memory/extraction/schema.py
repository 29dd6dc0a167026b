"""Pydantic models of a model's answers, and the strict JSON schemas sent with the request."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from copy import deepcopy
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from tellback.tools.schema import strip_titles

MAX_ENUM_IDS = 400
"""A longer list of ids is not spelt out in the schema: providers limit how many words it may hold."""


def _upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


KindField = Annotated[Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"], BeforeValidator(_upper)]
EntityTypeField = Annotated[
    Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"], BeforeValidator(_upper)
]
ChangeField = Annotated[Literal["none", "changed", "corrected"], BeforeValidator(_lower)]
VerdictField = Annotated[Literal["same", "replaces", "corrects", "new"], BeforeValidator(_lower)]


class FactOutput(BaseModel):
    """A fact as a model gives it."""

    messages: list[str] = Field(min_length=1, description="ids of the messages it rests on")
    quote: str | None = Field(None, description="the user's exact words")
    text: str = Field(description="one self-contained sentence")
    kind: KindField
    category: str = Field("", description="one or two plain words")
    subject: str | None = Field(None, description='whom or what it is about, such as "user"')
    attribute: str | None = Field(None, description='what of it, such as "home city"')
    value: str | None = Field(None, description='such as "Lisbon"')
    single: bool = Field(False, description="only one such value at a time")
    change: ChangeField = "none"
    since: str | None = Field(None, description="date, month or year: 2026-03-04, 2026-03, 2026")
    until: str | None = Field(None, description="date, month or year")
    importance: int = Field(3, ge=1, le=5)
    confidence: float = Field(0.8, ge=0, le=1)
    entities: list[str] = Field([], description="names of entities")


class EntityOutput(BaseModel):
    """An entity as a model gives it."""

    name: str
    type: EntityTypeField
    aliases: list[str] = []
    description: str | None = None


class ExtractionOutput(BaseModel):
    """What a model found in a window."""

    facts: list[FactOutput]
    entities: list[EntityOutput] = []


class DecisionOutput(BaseModel):
    """What a fact is to the candidate of that number."""

    fact: int
    verdict: VerdictField
    candidate: int | None = Field(None, description="null if new")


class DecisionsOutput(BaseModel):
    """A judgement for each fact."""

    decisions: list[DecisionOutput]


def extraction_schema(ids: Sequence[str], *, quotes: bool) -> dict[str, Any]:
    """The schema of `ExtractionOutput` for a window: only its own messages can be cited."""
    schema = deepcopy(_strict_schema(ExtractionOutput))
    properties = schema["properties"]["facts"]["items"]["properties"]
    if quotes:
        properties["quote"] = {"type": "string", "description": properties["quote"]["description"]}
    else:
        del properties["quote"]
        schema["properties"]["facts"]["items"]["required"].remove("quote")
    if len(ids) <= MAX_ENUM_IDS:
        properties["messages"]["items"]["enum"] = list(ids)
    return schema


def decisions_schema(facts: int, candidates: int) -> dict[str, Any]:
    """The schema of `DecisionsOutput` for so many facts, none of which has more candidates than that."""
    schema = deepcopy(_strict_schema(DecisionsOutput))
    decisions = schema["properties"]["decisions"]
    decisions.update(minItems=facts, maxItems=facts)
    properties = decisions["items"]["properties"]
    properties["fact"].update(minimum=1, maximum=facts)
    properties["candidate"]["anyOf"][0].update(minimum=1, maximum=candidates)
    return schema


@functools.cache
def _strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A model's schema as providers can hold a model to it: no references, every property required, none open."""
    schema = strip_titles(model.model_json_schema())
    strict: dict[str, Any] = _inline_references(schema, schema.pop("$defs", {}))
    return strict


def _inline_references(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline_references(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline_references(definitions[node["$ref"].removeprefix("#/$defs/")], definitions)
    closed = {
        key: _inline_references(value, definitions)
        for key, value in node.items()
        if key not in ("default", "properties")
    }
    if node.get("type") == "object":
        closed.pop("description", None)  # the docstring, which is for us
        closed["properties"] = {
            name: _inline_references(value, definitions) for name, value in node["properties"].items()
        }
        closed["required"] = list(closed["properties"])
        closed["additionalProperties"] = False
    return closed
