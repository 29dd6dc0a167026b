"""Base classes of all wire models: camelCase names, strict validation, and bounded field types.

A `WireModel` with a `value_type` gets its fields from that dataclass. Its class body declares only what is different in
JSON (examples, bounds, another type). A field is decoded according to its annotation in the dataclass.
"""

from __future__ import annotations

import inspect
import json
from collections import abc
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from types import MappingProxyType, NoneType, UnionType, new_class
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticSerializationError, core_schema

from tellback.types.access import Scope
from tellback.types.memory import AtomStatus, CategoryKind, EntityType
from tellback.validation import QUERY_LENGTH

# The parts of a core schema that contain other schemas; `metadata` and `default` do not.
_NESTED_KEYS = {"schema", "choices", "items_schema", "keys_schema", "values_schema", "definitions"}

T = TypeVar("T")

_MODEL_BY_VALUE: dict[type[Any], type[WireModel]] = {}
_SCOPE_FIELDS = ("tenant_id", "app_id", "user_id")
_OF_VALUE: dict[str, Any] = {}
"""The validation context of models that are created from a value. `Codec.encode` runs only in this context."""

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest integer that JSON parsers of all languages represent exactly."""

IdIn = Annotated[str, Field(min_length=1, max_length=200)]
NameIn = Annotated[str, Field(min_length=1, max_length=500)]
CountIn = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
FractionIn = Annotated[float, Field(ge=0, le=1)]
QueryIn = Annotated[str, Field(max_length=QUERY_LENGTH)]
"""A search query. Its length is limited, because ranking by a whole document is slow and gives poor results."""


def make_strict(schema: Any) -> Any:
    """Make a pydantic core schema strict about numbers and booleans: no strings, and no booleans as numbers."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(make_strict, schema))
    if not isinstance(schema, dict):
        return schema
    result = {name: make_strict(value) if name in _NESTED_KEYS else value for name, value in schema.items()}
    if isinstance(schema.get("fields"), dict):
        result["fields"] = {name: make_strict(field) for name, field in schema["fields"].items()}
    return {**result, "strict": True} if schema.get("type") in ("int", "float", "bool") else result


@lru_cache(maxsize=4_096)
def camel(name: str) -> str:
    """Return a field's name in JSON.

    >>> camel("source_message_ids"), camel("from_")
    ('sourceMessageIds', 'from')
    """
    return to_camel(name.rstrip("_"))


class WireModel(BaseModel):
    """A JSON object that a server returns. `value_type` is the dataclass that it represents.

    `hidden` are fields of the dataclass that are not sent. `examples` and `descriptions` are for OpenAPI, by field.
    Fields declared in the class body replace those of the dataclass, or are properties of the value.
    """

    model_config = ConfigDict(
        alias_generator=camel, validate_by_name=True, from_attributes=True, protected_namespaces=(), extra="ignore"
    )

    value_type: ClassVar[type[Any] | None] = None

    def __init_subclass__(
        cls,
        *,
        value_type: type[Any] | None = None,
        hidden: Collection[str] = (),
        examples: Mapping[str, Any] = MappingProxyType({}),
        descriptions: Mapping[str, str] = MappingProxyType({}),
        **config: Any,
    ) -> None:
        """Declare the fields of the value's class, before pydantic collects them."""
        super().__init_subclass__(**config)
        if value_type is not None:
            cls.value_type = value_type
            _declare_fields(cls, value_type, hidden, examples, descriptions)
            _MODEL_BY_VALUE.setdefault(value_type, cls)

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Create the model from a value's fields and properties."""
        return cls.model_validate(value, context=_OF_VALUE)

    @classmethod
    def decode(cls, payload: Any) -> Any:
        """Decode a server's JSON to a value."""
        return cls.model_validate(payload).value()

    def value(self) -> Any:
        """Return the value. Fields that are not sent have their defaults."""
        assert self.value_type is not None, f"{type(self).__name__} has no value_type"
        arguments = {name: decode(getattr(self, name)) for name, decode in _decoders(type(self)).items()}
        if "scope" in _value_fields(type(self)):
            arguments["scope"] = Scope(*(getattr(self, name) for name in _SCOPE_FIELDS))
        return self.value_type(**arguments)

    def to_json(self) -> bytes:
        try:
            return self.model_dump_json(by_alias=True).encode()
        except PydanticSerializationError:  # a lone surrogate in a text, which UTF-8 cannot encode
            return json.dumps(self.model_dump(mode="python", by_alias=True), default=_encode_fallback).encode()


def wire_model(value_type: type[Any]) -> type[WireModel]:
    """Return the model declared for a dataclass, or create one with the same fields."""
    if value_type not in _MODEL_BY_VALUE:
        body = {"__module__": __name__, "__doc__": (value_type.__doc__ or "").partition("\n\n")[0]}
        keywords = {"value_type": value_type}
        new_class(f"{value_type.__name__}Wire", (WireModel,), keywords, lambda namespace: namespace.update(body))
    return _MODEL_BY_VALUE[value_type]


@dataclass(frozen=True, slots=True)
class Codec:
    """How to encode and decode a field whose type does not define it: `Annotated[<JSON type>, Codec(...)]`."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the type's schema, preceded by `encode` for fields of a value."""
        schema: CoreSchema = handler(source)
        return core_schema.with_info_before_validator_function(self._validate, schema)

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        return self.encode(value) if info.context is _OF_VALUE else value


SECONDS = Codec(
    encode=lambda value: value.total_seconds() if isinstance(value, timedelta) else value,
    decode=lambda value: None if value is None else timedelta(seconds=value),
)
"""A duration, as seconds in JSON."""


class InputModel(BaseModel):
    """A JSON object that a server accepts. Unknown fields are rejected, so that misspelled names are noticed."""

    model_config = ConfigDict(alias_generator=camel, validate_by_name=True, protected_namespaces=(), extra="forbid")

    drops_null: ClassVar[bool] = False
    """Whether null means the field's default."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make the schema strict: a string instead of a number or boolean is an error."""
        schema: CoreSchema = make_strict(handler(source))
        return schema

    def arguments(self) -> dict[str, Any]:
        """Return the fields that were sent, as arguments of the method; its defaults apply to the others.

        Fields with `exclude=True` are not arguments: the server reads them itself.
        """
        given, arguments = self.model_fields_set, dict[str, Any]()
        for name, field in type(self).model_fields.items():
            if name in given and not field.exclude:
                value = getattr(self, name)
                if value is not None or not self.drops_null:
                    arguments[name] = _to_argument(value)
        return arguments


class Page(WireModel, Generic[T]):
    """One page of a list. If `nextCursor` is set, pass it as `cursor` to get the next page."""

    items: list[T]
    next_cursor: str | None = Field(default=None, description="The cursor of the next page; null on the last page.")


def _declare_fields(
    model: type[WireModel],
    value_type: type[Any],
    hidden: Collection[str],
    examples: Mapping[str, Any],
    descriptions: Mapping[str, str],
) -> None:
    """Add the fields of the dataclass that the model does not declare itself."""
    declared = inspect.get_annotations(model)
    hints, derived = get_type_hints(value_type), dict[str, Any]()
    for field in fields(value_type):
        name = field.name
        if name == "scope":
            derived |= dict.fromkeys(_SCOPE_FIELDS, str)
        elif name not in declared and name not in model.model_fields and name not in hidden:
            derived[name] = _to_wire_type(hints[name])
            options: dict[str, Any] = {"description": descriptions.get(name)}
            if name in examples:
                options["examples"] = [examples[name]]
            if field.default_factory is not MISSING or field.default == ():
                options["default_factory"] = list if field.default == () else field.default_factory
            elif field.default is not MISSING:
                options["default"] = field.default
            setattr(model, name, Field(**options))
    model.__annotations__ = {**derived, **declared}


def _to_wire_type(hint: Any) -> Any:
    """Return the JSON type of a dataclass field's type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is timedelta or timedelta in arguments:
        return Annotated[float | None if NoneType in arguments else float, SECONDS]
    if isinstance(hint, type) and is_dataclass(hint):
        return wire_model(hint)
    if origin is tuple:
        return list.__class_getitem__(_to_wire_type(arguments[0]))
    if origin in (Mapping, abc.Mapping):
        return dict.__class_getitem__(arguments)
    if origin in (Union, UnionType):
        kinds = [each for each in arguments if str not in arguments or get_origin(each) is not Literal]
        return Union[tuple(map(_to_wire_type, kinds))]  # noqa: UP007
    return hint


@cache
def _value_fields(model: type[WireModel]) -> frozenset[str]:
    assert model.value_type is not None
    return frozenset(field.name for field in fields(model.value_type))


@cache
def _decoders(model: type[WireModel]) -> dict[str, Callable[[Any], Any]]:
    """Return the decoders of the model's fields."""
    return {
        name: next((each.decode for each in field.metadata if isinstance(each, Codec)), _to_python)
        for name, field in model.model_fields.items()
        if name in _value_fields(model)
    }


def _to_python(value: Any) -> Any:
    if isinstance(value, WireModel):
        return value.value()
    if isinstance(value, datetime):
        return value.astimezone(UTC)  # all values are in UTC
    return tuple(map(_to_python, value)) if isinstance(value, list) else value


def _to_argument(value: Any) -> Any:
    if isinstance(value, InputModel):
        return value.arguments()
    if isinstance(value, list):
        return [_to_argument(each) for each in value]
    return {name: _to_argument(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _encode_fallback(value: Any) -> str:
    return value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else str(value)


class KeyMapping:
    """Renames known keys between Python and JSON. All other keys belong to callers and stay unchanged.

    >>> names = KeyMapping("message_id", space_id="memorySpaceId")
    >>> names.to_wire({"message_id": "msg_1", "space_id": "ms_1", "my_key": 1})
    {'messageId': 'msg_1', 'memorySpaceId': 'ms_1', 'my_key': 1}
    >>> names.from_wire({"messageId": "msg_1", "my_key": 1})
    {'message_id': 'msg_1', 'my_key': 1}
    """

    def __init__(self, *names: str, **wire_names: str) -> None:
        self._to_wire = {**{name: camel(name) for name in names}, **wire_names}
        self._from_wire = {wire_name: name for name, wire_name in self._to_wire.items()}

    def to_wire(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data with JSON names."""
        return _rename_keys(data, self._to_wire)

    def from_wire(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data with Python names."""
        return _rename_keys(data, self._from_wire)


def _rename_keys(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed = {names.get(name, name): value for name, value in data.items()}
    if len(renamed) == len(data):
        return renamed
    # If the caller's data already has such a name, keep both keys, so that decoding restores them.
    return {name if names.get(name, name) in data else names[name]: value for name, value in data.items()}


def _reject_numeric_datetime(value: Any) -> Any:
    """Raise for numbers, whose unit and epoch are ambiguous."""
    if isinstance(value, int | float) or (isinstance(value, str) and "-" not in value[1:]):
        raise ValueError("write dates like 2026-03-01T09:00:00Z")
    return value


DatetimeIn = Annotated[
    AwareDatetime, BeforeValidator(_reject_numeric_datetime), Field(examples=["2026-03-01T09:00:00Z"])
]
"""A date and time with a timezone."""


def _to_upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


CategoryKindIn = Annotated[CategoryKind, BeforeValidator(_to_upper)]
EntityTypeIn = Annotated[EntityType, BeforeValidator(_to_upper)]
AtomStatusIn = Annotated[AtomStatus, BeforeValidator(_to_upper)]
