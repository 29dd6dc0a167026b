"""Base classes of all wire models, camelCase names, strict validation, and bounded field types.

A `WireModel` with a `value_type` gets its fields from that dataclass: its class body says only what differs on the
wire (examples, bounds, another type). A field is decoded as its annotation in the dataclass says.
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

# The parts of a core schema that hold others; what is in `metadata` and `default` is none.
_NESTED_KEYS = {"schema", "choices", "items_schema", "keys_schema", "values_schema", "definitions"}

T = TypeVar("T")

_MODEL_BY_VALUE: dict[type[Any], type[WireModel]] = {}
_SCOPE_FIELDS = ("tenant_id", "app_id", "user_id")
_OF_VALUE: dict[str, Any] = {}
"""The context in which a model is made from a value: `Codec.encode` runs in it."""

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest whole number that JSON of every language can hold."""

IdIn = Annotated[str, Field(min_length=1, max_length=200)]
NameIn = Annotated[str, Field(min_length=1, max_length=500)]
CountIn = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
FractionIn = Annotated[float, Field(ge=0, le=1)]
QueryIn = Annotated[str, Field(max_length=QUERY_LENGTH)]
"""A question: ranking by a whole document takes its time, and a document has no topic."""


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


@lru_cache(maxsize=4_096)
def camel(name: str) -> str:
    """A field's name on the wire.

    >>> camel("source_message_ids"), camel("from_")
    ('sourceMessageIds', 'from')
    """
    return to_camel(name.rstrip("_"))


class WireModel(BaseModel):
    """Something a server gives. `value_type` is the dataclass it stands for, whose fields it has.

    `hidden` are fields of the dataclass that are not sent; `examples` and `descriptions` are for OpenAPI, by field.
    Fields that are declared in the class body replace those of the dataclass, or are properties of the value.
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
        """Declare the fields of the value's class; pydantic collects them after this."""
        super().__init_subclass__(**config)
        if value_type is not None:
            cls.value_type = value_type
            _declare_fields(cls, value_type, hidden, examples, descriptions)
            _MODEL_BY_VALUE.setdefault(value_type, cls)

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """It for a value, field by field and property by property."""
        return cls.model_validate(value, context=_OF_VALUE)

    @classmethod
    def decode(cls, payload: Any) -> Any:
        """The value that a server's JSON tells of."""
        return cls.model_validate(payload).value()

    def value(self) -> Any:
        """The value it was made of. Fields that are not on the wire have their defaults."""
        assert self.value_type is not None, f"{type(self).__name__} stands for no value"
        arguments = {name: decode(getattr(self, name)) for name, decode in _decoders(type(self)).items()}
        if "scope" in _value_fields(type(self)):
            arguments["scope"] = Scope(*(getattr(self, name) for name in _SCOPE_FIELDS))
        return self.value_type(**arguments)

    def to_json(self) -> bytes:
        try:
            return self.model_dump_json(by_alias=True).encode()
        except PydanticSerializationError:  # a lone surrogate in what someone said, which JSON can hold but UTF-8 not
            return json.dumps(self.model_dump(mode="python", by_alias=True), default=_encode_fallback).encode()


def wire_model(value_type: type[Any]) -> type[WireModel]:
    """The model of a dataclass: the one that was declared for it, or one with the same fields."""
    if value_type not in _MODEL_BY_VALUE:
        body = {"__module__": __name__, "__doc__": (value_type.__doc__ or "").partition("\n\n")[0]}
        keywords = {"value_type": value_type}
        new_class(f"{value_type.__name__}Wire", (WireModel,), keywords, lambda namespace: namespace.update(body))
    return _MODEL_BY_VALUE[value_type]


@dataclass(frozen=True, slots=True)
class Codec:
    """How a field goes over the wire where its type does not say: `Annotated[<type on the wire>, Codec(...)]`."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The type's own schema, after `encode` of what comes from a value."""
        schema: CoreSchema = handler(source)
        return core_schema.with_info_before_validator_function(self._validate, schema)

    def _validate(self, value: Any, info: ValidationInfo) -> Any:
        return self.encode(value) if info.context is _OF_VALUE else value


SECONDS = Codec(
    encode=lambda value: value.total_seconds() if isinstance(value, timedelta) else value,
    decode=lambda value: None if value is None else timedelta(seconds=value),
)
"""A length of time, in seconds on the wire."""


class InputModel(BaseModel):
    """Something a server takes. What it does not know is refused, so that a misspelt name is noticed."""

    model_config = ConfigDict(alias_generator=camel, validate_by_name=True, protected_namespaces=(), extra="forbid")

    drops_null: ClassVar[bool] = False
    """Whether null stands for a field's default."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Numbers are numbers, and true is true: a text like them is a mistake that should be told."""
        schema: CoreSchema = make_strict(handler(source))
        return schema

    def arguments(self) -> dict[str, Any]:
        """What was given, by the names of the method it is for: the method's own defaults hold for the rest.

        Fields that are declared with `exclude=True` are no arguments: a server reads them itself.
        """
        given, arguments = self.model_fields_set, dict[str, Any]()
        for name, field in type(self).model_fields.items():
            if name in given and not field.exclude:
                value = getattr(self, name)
                if value is not None or not self.drops_null:
                    arguments[name] = _to_argument(value)
        return arguments


class Page(WireModel, Generic[T]):
    """A part of a list. With `nextCursor`, there is more: pass it as `cursor`."""

    items: list[T]
    next_cursor: str | None = Field(default=None, description="For the next page; null on the last one.")


def _declare_fields(
    model: type[WireModel],
    value_type: type[Any],
    hidden: Collection[str],
    examples: Mapping[str, Any],
    descriptions: Mapping[str, str],
) -> None:
    """Add the fields of a dataclass that a model does not declare itself."""
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
    """The type on the wire of what has that type in a value."""
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
    """How each field of a model becomes one of the value."""
    return {
        name: next((each.decode for each in field.metadata if isinstance(each, Codec)), _to_python)
        for name, field in model.model_fields.items()
        if name in _value_fields(model)
    }


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


class KeyMapping:
    """Certain names, and what they are called on the wire. All others are someone's own, and stay as they are.

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
        """Data as they go over the wire."""
        return _rename_keys(data, self._to_wire)

    def from_wire(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Data as they were."""
        return _rename_keys(data, self._from_wire)


def _rename_keys(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed = {names.get(name, name): value for name, value in data.items()}
    if len(renamed) == len(data):
        return renamed
    # Where someone's own data have that name already, both stay as they are: so they are read as they were.
    return {name if names.get(name, name) in data else names[name]: value for name, value in data.items()}


def _reject_numeric_datetime(value: Any) -> Any:
    """Refuse a number, which says neither what it counts nor from when."""
    if isinstance(value, int | float) or (isinstance(value, str) and "-" not in value[1:]):
        raise ValueError("a moment is written like 2026-03-01T09:00:00Z")
    return value


DatetimeIn = Annotated[
    AwareDatetime, BeforeValidator(_reject_numeric_datetime), Field(examples=["2026-03-01T09:00:00Z"])
]
"""A moment that says its timezone."""


def _to_upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


CategoryKindIn = Annotated[CategoryKind, BeforeValidator(_to_upper)]
EntityTypeIn = Annotated[EntityType, BeforeValidator(_to_upper)]
AtomStatusIn = Annotated[AtomStatus, BeforeValidator(_to_upper)]
