"""What all models of the wire share."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticSerializationError

from tellback.types.scope import Scope
from tellback.wire.strictness import make_strict

T = TypeVar("T")


@lru_cache(maxsize=4_096)
def camel(name: str) -> str:
    """A field's name on the wire.

    >>> camel("source_message_ids"), camel("from_")
    ('sourceMessageIds', 'from')
    """
    return to_camel(name.rstrip("_"))


class WireModel(BaseModel):
    """Something a server gives. `kind` is the class of the values it stands for."""

    model_config = ConfigDict(
        alias_generator=camel, validate_by_name=True, from_attributes=True, protected_namespaces=(), extra="ignore"
    )

    value_type: ClassVar[type[Any] | None] = None

    @classmethod
    def of(cls, value: Any) -> Self:
        """It for a value, field by field and property by property."""
        return cls.model_validate(value)

    def value(self) -> Any:
        """The value it was made of. Fields that are not on the wire have their defaults."""
        assert self.value_type is not None, f"{type(self).__name__} stands for no value"
        arguments = {
            name: _to_python(getattr(self, name))
            for name in type(self).model_fields
            if name in _field_names(self.value_type)
        }
        if "scope" in _field_names(self.value_type):
            arguments["scope"] = Scope(*(getattr(self, name) for name in ("tenant_id", "app_id", "user_id")))
        return self.value_type(**arguments)

    def to_json(self) -> bytes:
        """It as JSON."""
        try:
            return self.model_dump_json(by_alias=True).encode()
        except PydanticSerializationError:  # a lone surrogate in what someone said, which JSON can hold but UTF-8 not
            return json.dumps(self.model_dump(mode="python", by_alias=True), default=_encode_fallback).encode()


class InputModel(BaseModel):
    """Something a server takes. What it does not know is refused, so that a misspelt name is noticed."""

    model_config = ConfigDict(alias_generator=camel, validate_by_name=True, protected_namespaces=(), extra="forbid")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Numbers are numbers, and true is true: a text like them is a mistake that should be told."""
        schema: CoreSchema = make_strict(handler(source))
        return schema

    def arguments(self) -> dict[str, Any]:
        """What was given, by the names of the method it is for: the method's own defaults hold for the rest."""
        return {
            name: _to_argument(getattr(self, name)) for name in type(self).model_fields if name in self.model_fields_set
        }


class Page(WireModel, Generic[T]):
    """A part of a list. With `nextCursor`, there is more: pass it as `cursor`."""

    items: list[T]
    next_cursor: str | None = Field(default=None, description="For the next page; null on the last one.")


_FIELD_NAMES: dict[Any, frozenset[str]] = {}


def _field_names(kind: type[Any]) -> frozenset[str]:
    """The fields of a value's class."""
    if kind not in _FIELD_NAMES:
        _FIELD_NAMES[kind] = frozenset(field.name for field in fields(kind))
    return _FIELD_NAMES[kind]


def _to_python(value: Any) -> Any:
    if isinstance(value, WireModel):
        return value.value()
    if isinstance(value, datetime):
        return value.astimezone(UTC)  # the same moment, in the timezone that all others are in
    return tuple(map(_to_python, value)) if isinstance(value, list) else value


def _to_argument(value: Any) -> Any:
    if isinstance(value, InputModel):
        return value.arguments()
    if isinstance(value, list):
        return [_to_argument(each) for each in value]
    return {name: _to_argument(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _encode_fallback(value: Any) -> str:
    return value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else str(value)
