"""What a route gathers: its fields, and values for them read as people write them, checked and typed."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from enum import Enum
from typing import Any, Protocol

from recollect.errors import FlowError
from recollect.tools.schema import without_titles
from recollect.types.jsontext import storable
from recollect.types.names import folded

_REFERENCE = "#/$defs/"


class InvalidValue(ValueError):
    """A value does not fit its field; the message is one short sentence for a model or a person to act on."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value to gather: its JSON schema as a model is shown it, and whether a state waits for it."""

    name: str
    schema: Mapping[str, Any]
    needed: bool


class _Values(Protocol):
    """How values of one kind of schema are checked."""

    def check(self, name: str, value: Any) -> Any: ...
    def restore(self, name: str, value: Any) -> Any: ...
    def whole(self, data: Mapping[str, Any]) -> Any: ...


class GatherSchema:
    """The fields of a route, from a JSON schema or a pydantic model.

    >>> schema = GatherSchema.of({"type": "object", "properties": {"passengers": {"type": "integer"}}}, "route 'Book'")
    >>> schema.check("passengers", " 2 "), schema.fields["passengers"].needed
    (2, True)
    """

    __slots__ = ("_values", "definitions", "fields")

    def __init__(self, fields: Mapping[str, Field], definitions: Mapping[str, Any], values: _Values) -> None:
        self.fields = fields
        self.definitions = definitions
        self._values = values

    @classmethod
    def of(cls, given: Mapping[str, Any] | type | None, place: str) -> GatherSchema:
        """The schema a route was given; `FlowError` at `place` when it cannot be used."""
        if given is None:
            given = {"type": "object", "properties": {}}
        if isinstance(given, Mapping):
            fields, definitions = _json_fields(given, place)
            return cls(fields, definitions, _JsonValues(fields, definitions))
        from pydantic import BaseModel

        if isinstance(given, BaseModel):
            name = type(given).__name__
            raise FlowError(place, f"gather_schema is an instance of {name}: pass the class, gather_schema={name}.")
        if not (isinstance(given, type) and issubclass(given, BaseModel)):
            raise FlowError(place, f"gather_schema is a JSON schema or a pydantic model class, not {given!r:.80}.")
        fields, definitions = _model_fields(given, place)
        return cls(fields, definitions, _ModelValues(given, fields, definitions))

    def check(self, name: str, value: Any) -> Any:
        """The value as it is kept; `InvalidValue` says why it cannot be."""
        if name not in self.fields:
            raise InvalidValue(f"is not gathered here; what is: {', '.join(self.fields) or 'nothing'}")
        try:
            return self._values.check(name, _usable(_plain(value)))
        except RecursionError:
            raise InvalidValue("is nested too deeply") from None

    def restore(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Values that came back from JSON with their types; what is unknown or fits no more is as it was."""
        return {name: self._values.restore(name, each) if name in self.fields else each for name, each in data.items()}

    def plain(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """The values as JSON has them."""
        return {name: _plain(value, str) for name, value in data.items()}

    def typed(self, data: Mapping[str, Any]) -> Any:
        """An instance of the model, when the schema is one and nothing needed is missing; else a dict."""
        if any(field.needed and name not in data for name, field in self.fields.items()):
            return dict(data)
        return self._values.whole(data)


class _JsonValues:
    """Values that stay JSON, checked by a JSON schema."""

    def __init__(self, fields: Mapping[str, Field], definitions: Mapping[str, Any]) -> None:
        self._reader = _Reader(definitions)
        self._fields = {name: field.schema for name, field in fields.items()}
        self._validators = {name: self._reader.validator.evolve(schema=each) for name, each in self._fields.items()}

    def check(self, name: str, value: Any) -> Any:
        from jsonschema.exceptions import best_match

        read = self._reader.read(self._fields[name], value)
        worst = best_match(self._validators[name].iter_errors(read))
        if worst is not None:
            raise InvalidValue(_sentence(worst.absolute_path, worst.message))
        return read

    def restore(self, name: str, value: Any) -> Any:
        return value

    def whole(self, data: Mapping[str, Any]) -> Any:
        return dict(data)


class _ModelValues:
    """Values typed by a pydantic model, each checked alone: what the model says of all together must not run."""

    def __init__(self, model: Any, fields: Mapping[str, Field], definitions: Mapping[str, Any]) -> None:
        from pydantic_core import SchemaValidator

        self._model = model
        self._reader = _Reader(definitions)
        self._fields = {name: field.schema for name, field in fields.items()}
        core, config, shared = _field_cores(model)
        own = [decorator.func for decorator in model.__pydantic_decorators__.field_validators.values()]
        typed = {name: _without(each, own) for name, each in core.items()}

        def validator(name: str, each: Any) -> Any:
            # As the only field of a model, so that validators find the `info.data` they may look at.
            alone: Any = {"type": "model-fields", "fields": {name: {"type": "model-field", "schema": each}}}
            return SchemaValidator({"type": "definitions", "schema": alone, "definitions": shared}, config)

        self._checked = {name: validator(name, each) for name, each in core.items()}
        self._typed = {name: validator(name, each) for name, each in typed.items()}
        self._reads_itself = {name for name, each in core.items() if _reads_itself(each)}

    def check(self, name: str, value: Any) -> Any:
        # A validator that runs before the type may read more than we do, so it is given text as it was written.
        if name in self._reads_itself and isinstance(value, str) and value.strip():
            try:
                return self._validated(self._checked, name, value.strip())
            except InvalidValue as refused:
                try:
                    value = self._reader.read(self._fields[name], value)
                except InvalidValue:
                    raise refused from None
                return self._validated(self._checked, name, value)
        return self._validated(self._checked, name, self._reader.read(self._fields[name], value))

    def restore(self, name: str, value: Any) -> Any:
        try:  # typed again, not judged again: a date that was in the future is still a date
            return self._validated(self._typed, name, _plain(value))
        except (ValueError, RecursionError):
            return value

    def whole(self, data: Mapping[str, Any]) -> Any:
        from pydantic import ValidationError

        known = {name: value for name, value in data.items() if name in self._fields}
        try:
            return self._model.model_validate(known, by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidValue(_explained(error, 0)) from None

    def _validated(self, validators: Mapping[str, Any], name: str, value: Any) -> Any:
        from pydantic import ValidationError

        # As JSON, in which strict models take dates and enums too.
        try:
            data, *_ = validators[name].validate_json(json.dumps({name: value}), by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidValue(_explained(error, 1)) from None
        except (KeyError, TypeError, AttributeError):
            if validators is self._typed:
                raise
            # The model's validator wants fields that are not there yet; it runs again when all are.
            return self._validated(self._typed, name, value)
        if isinstance(data[name], float) and not math.isfinite(data[name]):
            raise InvalidValue("is not a finite number")
        return data[name]


def _json_fields(given: Mapping[str, Any], place: str) -> tuple[dict[str, Field], dict[str, Any]]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        schema = _copied(given)
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        raise FlowError(
            place, f"gather_schema is no valid JSON schema: {where and where + ': '}{error.message}."
        ) from None
    except TypeError as error:
        raise FlowError(place, f"gather_schema is no valid JSON schema: {error}.") from None
    except RecursionError:
        raise FlowError(place, "gather_schema holds itself: use $ref and $defs instead.") from None
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    schema = _followed(schema, definitions)
    if schema.get("type", "object" if "properties" in schema else None) != "object":
        raise FlowError(place, 'gather_schema is a JSON schema of {"type": "object", "properties": {...}}.')
    properties = schema.get("properties", {})
    for name, each in properties.items():
        if not isinstance(name, str) or not name.strip():
            raise FlowError(place, f"a field of gather_schema has no name, but {name!r}.")
        if each is False:
            raise FlowError(place, f"field {name!r} of gather_schema takes no value at all.")
    unknown = [name for name in schema.get("required", ()) if name not in properties]
    if unknown:
        raise FlowError(place, f"gather_schema requires {unknown[0]!r}, which is not among its properties.")
    for part in (properties, definitions):
        _check_references({"properties": part}, definitions, place)
    needed = schema.get("required", list(properties))
    fields = {
        name: Field(name, without_titles({} if each is True else each), name in needed)
        for name, each in properties.items()
    }
    return fields, without_titles({"$defs": definitions})["$defs"]


def _model_fields(model: Any, place: str) -> tuple[dict[str, Field], dict[str, Any]]:
    import warnings

    from pydantic import RootModel
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
    from pydantic.json_schema import PydanticJsonSchemaWarning

    if issubclass(model, RootModel):
        raise FlowError(place, f"gather_schema {model.__name__} is a RootModel, which has no fields to gather.")
    try:
        with warnings.catch_warnings():
            # A default that is no JSON is left out of the schema, which is all it should be.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            schema = without_titles(model.model_json_schema(by_alias=False))
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError) as error:
        problem = str(error).splitlines()[0]
        raise FlowError(place, f"gather_schema {model.__name__} has no JSON schema: {problem}.") from error
    definitions = schema.get("$defs", {})
    properties = _followed(schema, definitions).get("properties", {})
    fields = {
        name: Field(name, properties.get(name, {}), info.is_required()) for name, info in model.model_fields.items()
    }
    return fields, definitions


def _field_cores(model: Any) -> tuple[dict[str, Any], Any, list[Any]]:
    """The validation of each field of a model, without the model's own; its config; what they share."""
    node = model.__pydantic_core_schema__
    shared = list(node.get("definitions", ()))
    config: Any = None
    while node["type"] != "model-fields":
        if node["type"] == "definition-ref":
            node = next(each for each in shared if each["ref"] == node["schema_ref"])
            continue
        config = node["config"] if node["type"] == "model" else config
        node = node["schema"]
    return {name: field["schema"] for name, field in node["fields"].items()}, config, shared


def _without(core: Any, validators: Sequence[Any]) -> Any:
    """A field's validation without its default and the model's own validators."""
    while core["type"] == "default" or (
        core["type"].startswith("function-") and "schema" in core and core["function"]["function"] in validators
    ):
        core = core["schema"]
    return core


def _reads_itself(core: Any) -> bool:
    while core["type"] in ("default", "function-after"):
        core = core["schema"]
    return core["type"] in ("function-before", "function-wrap", "function-plain")


def _copied(schema: Any) -> Any:
    """A schema in plain containers, its references in the newer spelling."""
    if isinstance(schema, Mapping):
        for name in schema:
            if not isinstance(name, str):
                raise TypeError(f"{name!r} is no name")
        copy = {name: _copied(each) for name, each in schema.items()}
        if isinstance(copy.get("$ref"), str):
            copy["$ref"] = copy["$ref"].replace("#/definitions/", _REFERENCE)
        return copy
    return [_copied(each) for each in schema] if isinstance(schema, list | tuple) else schema


def _followed(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema a root reference leads to, which is how recursive models are written."""
    for _ in definitions:
        if "properties" not in schema and isinstance(schema.get("$ref"), str):
            schema = definitions.get(schema["$ref"].removeprefix(_REFERENCE), {})
    return schema


def _check_references(schema: Any, definitions: Mapping[str, Any], place: str) -> None:
    if isinstance(schema, list):
        for each in schema:
            _check_references(each, definitions, place)
    if not isinstance(schema, dict):
        return
    target = schema.get("$ref")
    if isinstance(target, str) and target.removeprefix(_REFERENCE) not in definitions:
        raise FlowError(place, f"gather_schema refers to {target!r}, which is not in its $defs.")
    for key in ("$id", "$anchor", "$dynamicRef"):
        if isinstance(schema.get(key), str):
            raise FlowError(place, f"gather_schema has {key} in a field: use $ref to $defs only.")
    for key, each in schema.items():
        if key not in ("const", "enum", "default", "examples"):
            _check_references(each, definitions, place)


class _Reader:
    """Reads values as people and models write them into what a JSON schema declares, as far as that is plain."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        from jsonschema import Draft202012Validator, FormatChecker
        from referencing import Registry

        # Those that need no other package, so that a schema means the same on every machine.
        formats = FormatChecker(("email", "ipv4", "ipv6", "uuid"))
        for name, read in _FORMATS.items():
            formats.checks(name, raises=InvalidValue)(functools.partial(_is_read, read))
        self._definitions = definitions
        # A reference elsewhere is not fetched.
        self.validator: Any = Draft202012Validator({"$defs": definitions}, registry=Registry(), format_checker=formats)

    def read(self, schema: Any, value: Any) -> Any:
        """The value as the schema has it, or as it was where the schema says nothing of it."""
        if not isinstance(schema, Mapping):
            return value
        if value is None:
            if self._allows_null(schema):
                return None
            raise InvalidValue("is null, which states nothing")
        if isinstance(value, str):
            value = value.strip()
        if "enum" in schema or "const" in schema:
            return _declared(schema.get("enum", [schema.get("const")]), value)
        if value == "":
            raise InvalidValue("is empty")
        if "$ref" in schema:
            value = self.read(self._target(schema), value)
        for part in schema.get("allOf", ()):
            value = self.read(part, value)
        for key in ("anyOf", "oneOf"):
            if key in schema:
                value = self._either(schema[key], value)
        kind = schema.get("type") or _implied(schema, value)
        if isinstance(kind, list):
            return self._either([{**schema, "type": each} for each in kind], value)
        return self._of_type(kind, schema, value)

    def _of_type(self, kind: str | None, schema: Mapping[str, Any], value: Any) -> Any:
        match kind:
            case "string":
                return _text(schema, value)
            case "integer" | "number":
                return _number(value, whole=kind == "integer")
            case "boolean":
                return _boolean(value)
            case "null":
                raise InvalidValue(f"{_shown(value)} is not null")
            case "array":
                return self._list(schema, value if isinstance(value, list) else [value])
            case "object":
                return self._object(schema, value)
        return value

    def _either(self, branches: Sequence[Any], value: Any) -> Any:
        """What fits as it is wins over what has to be read; a branch that can be read but does not fit comes last."""
        branches = [each for each in branches if not (isinstance(each, Mapping) and each.get("type") == "null")]
        if len(branches) == 1:
            return self.read(branches[0], value)
        for branch in branches:
            if self._fits(branch, value):
                try:
                    return self.read(branch, value)
                except InvalidValue:
                    continue
        readable: list[Any] = []
        problems: dict[str, None] = {}
        for branch in branches:
            try:
                readable.append(self.read(branch, value))
            except InvalidValue as problem:
                problems[str(problem)] = None
                continue
            if self._fits(branch, readable[-1]):
                return readable[-1]
        if not readable:
            raise InvalidValue(", and ".join(problems) or "has no value that would fit")
        return readable[0]

    def _list(self, schema: Mapping[str, Any], values: Sequence[Any]) -> list[Any]:
        first = schema.get("prefixItems", [])
        rest = schema.get("items")
        return [
            self._part(f"item {index + 1}", first[index] if index < len(first) else rest, value)
            for index, value in enumerate(values)
        ]

    def _object(self, schema: Mapping[str, Any], value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InvalidValue(f"{_shown(value)} is not an object")
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        read: dict[str, Any] = {}
        for name, each in value.items():
            part = named.get(name, others)
            # Models write null for what was not stated.
            if each is None and name in named and not self._allows_null(part):
                continue
            read[name] = self._part(name, part, each)
        return read

    def _part(self, where: str, schema: Any, value: Any) -> Any:
        try:
            return self.read(schema, value)
        except InvalidValue as problem:
            raise InvalidValue(f"{where}: {problem}") from None

    def _fits(self, schema: Any, value: Any) -> bool:
        try:
            return bool(self.validator.evolve(schema=schema).is_valid(value))
        except re.error:  # a pattern that pydantic knows and Python does not; pydantic will judge it
            return True

    def _allows_null(self, schema: Any) -> bool:
        if not isinstance(schema, Mapping):
            return False
        if "$ref" in schema and self._allows_null(self._target(schema)):
            return True
        if None in schema.get("enum", ()) or schema.get("const", ...) is None or schema.get("type") == "null":
            return True
        if isinstance(schema.get("type"), list) and "null" in schema["type"]:
            return True
        parts = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
        return any(self._allows_null(each) for each in parts)

    def _target(self, schema: Mapping[str, Any]) -> Any:
        return self._definitions[schema["$ref"].removeprefix(_REFERENCE)]


def _implied(schema: Mapping[str, Any], value: Any) -> str | None:
    """The type a schema means that does not say it."""
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) and "format" in schema else None


def _declared(options: Sequence[Any], value: Any) -> Any:
    for option in options:
        if option == value and isinstance(option, bool) == isinstance(value, bool):
            return option
    if isinstance(value, str):
        alike = [option for option in options if _says(option, value)]
        if len(alike) == 1:
            return alike[0]
    shown = ", ".join(_shown(option) for option in options[:20])
    raise InvalidValue(f"{_shown(value)} is not {'one of ' if len(options) > 1 else ''}{shown}")


def _says(option: Any, text: str) -> bool:
    if isinstance(option, str):
        return folded(option) == folded(text)
    try:
        if isinstance(option, bool):
            return _boolean(text) is option
        return isinstance(option, int | float) and bool(_number(text, whole=isinstance(option, int)) == option)
    except InvalidValue:
        return False


def _text(schema: Mapping[str, Any], value: Any) -> str:
    read = _FORMATS.get(schema.get("format", ""))
    if read is not None:
        return read(value)
    if not isinstance(value, str):
        raise InvalidValue(f"{_shown(value)} is not a text")
    return value


_NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?|\.\d+)")
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_ONE_COMMA = re.compile(r"[+-]?\d{1,3},\d{3}")
_ONE_POINT = re.compile(r"[+-]?\d{1,3}\.\d{3}")
_LONGEST_NUMBER = 300
"""Digits a number may have, so that every database and JSON reader can hold it."""


def _number(value: Any, *, whole: bool) -> int | float:
    wanted = "a whole number" if whole else "a number"
    if isinstance(value, str):
        value = _number_of(value, whole)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"{_shown(value)} is not {wanted}")
    if whole and isinstance(value, float):
        if not value.is_integer():
            raise InvalidValue(f"{_shown(value)} is not {wanted}")
        return int(value)
    return value


def _number_of(text: str, whole: bool) -> Any:
    """The number a text says, or the text. Some write 1,500 for one and a half, some for fifteen hundred."""
    if len(text) > _LONGEST_NUMBER:
        return text
    if (_ONE_POINT if whole else _ONE_COMMA).fullmatch(text):
        raise InvalidValue(f"{_shown(text)} is ambiguous: give the number without separators")
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        value = {"yes": True, "true": True, "no": False, "false": False}.get(folded(value), value)
    if not isinstance(value, bool):
        raise InvalidValue(f"{_shown(value)} is neither yes nor no")
    return value


_DAY = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[Tt ]\s*(.+))?")
_CLOCK = re.compile(
    r"(\d{1,2})(:\d{2}(?::\d{2}(?:\.\d+)?)?)(?:\s*([ap])\.?m\.?)?\s*(z|[+-]\d{2}:?\d{2})?", re.IGNORECASE
)
_TWO_WAYS = re.compile(r"(0?[1-9]|1[0-2])([-/. ])(0?[1-9]|1[0-2])\2\d{2,4}\b.*")


def _date(value: Any) -> str:
    """A day as `2026-12-01`; of a moment, its day."""
    return _moment(value, "YYYY-MM-DD").date().isoformat()


def _datetime(value: Any) -> str:
    """A moment in ISO; of a day, its midnight."""
    return _moment(value, "YYYY-MM-DDTHH:MM").isoformat()


def _moment(value: Any, form: str) -> datetime:
    if not isinstance(value, str):
        raise InvalidValue(f"{_shown(value)} is not a date: give it as {form}")
    if _TWO_WAYS.fullmatch(value):
        raise InvalidValue(f"{_shown(value)} is ambiguous: give the date as {form}")
    found = _DAY.fullmatch(value)
    try:
        if found is None:
            return datetime.fromisoformat(value)
        year, _, month, day, clock = found.groups()
        return datetime.combine(date(int(year), int(month), int(day)), _clock(clock) if clock else time.min)
    except ValueError:
        raise InvalidValue(f"{_shown(value)} is not a date: give it as {form}") from None


def _time(value: Any) -> str:
    """A time of the day as `09:30:00`."""
    try:
        return _clock(value).isoformat()
    except (ValueError, TypeError):
        raise InvalidValue(f"{_shown(value)} is not a time: give it as HH:MM") from None


def _clock(text: str) -> time:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError(text)
    hour, rest, half, offset = found.groups()
    number = int(hour)
    if half is not None:
        if not 1 <= number <= 12:
            raise ValueError(text)
        number = number % 12 + (12 if half in "pP" else 0)
    return time.fromisoformat(f"{number:02}{rest}{(offset or '').upper()}")


_FORMATS: Mapping[str, Callable[[Any], str]] = {"date": _date, "date-time": _datetime, "time": _time}


def _is_read(read: Callable[[Any], str], value: object) -> bool:
    return not isinstance(value, str) or read(value) == value


def _plain(value: Any, otherwise: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON has it; `otherwise` makes something of what JSON cannot hold."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _plain(value.value, otherwise)
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(_plain(key, otherwise)): _plain(each, otherwise) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, otherwise) for each in value]
    if hasattr(type(value), "model_fields"):
        # By field, not by model_dump: a serializer may write what its model cannot read.
        names = type(value).model_fields
        if "root" in names:
            return _plain(value.root, otherwise)
        data = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return _plain({**data, **(value.model_extra or {})}, otherwise)
    if hasattr(value, "get_secret_value"):
        return _plain(value.get_secret_value(), otherwise)
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, UnicodeDecodeError):
        if otherwise is None:
            raise InvalidValue(f"is of type {type(value).__name__}, which is no JSON value") from None
        return otherwise(value)


def _usable(value: Any) -> Any:
    """A JSON value that every database can hold."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValue("is not a finite number")
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_NUMBER:
        raise InvalidValue("is too large a number")
    if isinstance(value, list):
        return [_usable(each) for each in value]
    return {storable(name): _usable(each) for name, each in value.items()} if isinstance(value, dict) else value


def _explained(error: Any, skipped: int) -> str:
    """The first problems of a pydantic error; `skipped` parts of each path are known to the reader."""
    lines = []
    for problem in error.errors(include_url=False, include_context=False)[:3]:
        message, given = problem["msg"], _shown(problem["input"])
        if problem["type"] in ("value_error", "assertion_error"):
            message = message.partition(", ")[2] or message
        elif problem["type"] == "missing":
            message = "is missing"
        elif message.startswith("Input "):
            message = f"{given}{message.removeprefix('Input')}"
        else:
            message = f"{message}, got {given}"
        lines.append(_sentence(problem["loc"][skipped:], message))
    return "; ".join(lines)


def _sentence(path: Sequence[Any], message: str) -> str:
    where = ".".join(map(str, path))
    return f"{where and where + ': '}{' '.join(message.split())}"[:300]


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, skipkeys=True, default=repr)
    return text if len(text) <= 80 else f"{text[:77]}..."
