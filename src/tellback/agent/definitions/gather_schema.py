"""`GatherSchema`: the fields that a route gathers, from a JSON schema or a pydantic model.

It validates each value separately and restores typed values from JSON."""

from __future__ import annotations

import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellback.agent.definitions.value_parser import (
    REFERENCE_PREFIX,
    InvalidValue,
    ValueParser,
    explain_validation_error,
    format_problem,
    to_plain_value,
    validate_storable,
)
from tellback.errors import FlowError
from tellback.tools.schema import strip_titles
from tellback.types.jsontext import dump_json


@dataclass(frozen=True, slots=True)
class GatherField:
    """One value to gather: the JSON schema that the model sees, and whether a state asks until it has the value."""

    name: str
    schema: Mapping[str, Any]
    required: bool
    schema_json: str = field(init=False, compare=False, repr=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema_json", dump_json(self.schema))


class GatherSchema(ABC):
    """The fields of a route, from a JSON schema or a pydantic model.

    >>> definition = {"type": "object", "properties": {"passengers": {"type": "integer"}}}
    >>> schema = GatherSchema.from_definition(definition, "route 'Book'")
    >>> schema.check("passengers", " 2 "), schema.fields["passengers"].required
    (2, True)
    """

    __slots__ = ("_parser", "definitions", "fields")

    def __init__(self, fields: Mapping[str, GatherField], definitions: Mapping[str, Any]) -> None:
        self.fields = fields
        self.definitions = definitions
        self._parser = ValueParser(definitions)

    @classmethod
    def from_definition(cls, schema: Mapping[str, Any] | type | None, place: str) -> GatherSchema:
        """Build the schema from a route's `gather_schema`; raise `FlowError` at `place` if it cannot be used."""
        if schema is None:
            schema = {"type": "object", "properties": {}}
        if isinstance(schema, Mapping):
            fields, definitions = _fields_from_json_schema(schema, place)
            return _JsonSchema(fields, definitions)
        from pydantic import BaseModel

        if isinstance(schema, BaseModel):
            name = type(schema).__name__
            raise FlowError(place, f"gather_schema is an instance of {name}: pass the class, gather_schema={name}.")
        if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
            raise FlowError(
                place, f"gather_schema must be a JSON schema or a pydantic model class, got {schema!r:.80}."
            )
        fields, definitions = _fields_from_model(schema, place)
        return _ModelSchema(fields, definitions, schema)

    def check(self, name: str, value: Any) -> Any:
        """Return the value in the form that is stored; raise `InvalidValue` if it does not fit."""
        if name not in self.fields:
            raise InvalidValue(f"is not a field of gather_schema; its fields: {', '.join(self.fields) or 'none'}")
        try:
            return self._check(name, validate_storable(to_plain_value(value)))
        except RecursionError:
            raise InvalidValue("is nested too deeply") from None

    def is_list(self, name: str) -> bool:
        return self.fields[name].schema.get("type") == "array"

    def extend(self, name: str, known: Any, new: Any) -> Any:
        """Return the known list with new items; `new` may also be the complete list."""
        if len(new) > len(known) and list(new[: len(known)]) == list(known):
            return new
        # The same text twice is one item; a second equal object is another one, as in "another pizza".
        items = [each for each in new if each not in known or not isinstance(each, str | int | float)]
        return self.check(name, self.plain({name: [*known, *items]})[name])

    def restore(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Restore the types of values read from JSON; unknown fields and invalid values stay unchanged."""
        return {name: self._restore(name, each) if name in self.fields else each for name, each in data.items()}

    def plain(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values as plain JSON values."""
        return {name: to_plain_value(value, str) for name, value in data.items()}

    def typed(self, data: Mapping[str, Any]) -> Any:
        """Return an instance of the model; return a dict if a required field is missing, or for a JSON schema."""
        if any(field.required and name not in data for name, field in self.fields.items()):
            return dict(data)
        return self._build_whole(data)

    def find_inconsistency(self, data: Mapping[str, Any]) -> str | None:
        """Return why the values do not fit together, or None. Fields may be missing: then only checks that do not
        need them are made."""
        try:
            self._check_together(data)
            self.typed(data)
        except InvalidValue as problem:
            return str(problem)
        return None

    @abstractmethod
    def _check(self, name: str, value: Any) -> Any: ...

    def _check_together(self, data: Mapping[str, Any]) -> None:
        """Raise `InvalidValue` if a check of several fields fails that needs no missing field."""
        return

    def _restore(self, name: str, value: Any) -> Any:
        return value

    def _build_whole(self, data: Mapping[str, Any]) -> Any:
        return dict(data)


class _JsonSchema(GatherSchema):
    """JSON values checked by a JSON schema."""

    __slots__ = ("_validators",)

    def __init__(self, fields: Mapping[str, GatherField], definitions: Mapping[str, Any]) -> None:
        super().__init__(fields, definitions)
        self._validators = {name: self._parser.validator.evolve(schema=each.schema) for name, each in fields.items()}

    def _check(self, name: str, value: Any) -> Any:
        from jsonschema.exceptions import best_match

        parsed = self._parser.parse(self.fields[name].schema, value)
        problem = best_match(self._validators[name].iter_errors(parsed))
        if problem is not None:
            raise InvalidValue(format_problem(problem.absolute_path, problem.message))
        return parsed


class _ModelSchema(GatherSchema):
    """Values typed by a pydantic model. Each is checked alone, without the validators for the whole model."""

    __slots__ = ("_full_validators", "_model", "_self_parsing", "_type_validators")

    def __init__(self, fields: Mapping[str, GatherField], definitions: Mapping[str, Any], model: Any) -> None:
        from pydantic_core import SchemaValidator

        super().__init__(fields, definitions)
        self._model = model
        core, config, shared = _field_core_schemas(model)
        own_validators = [decorator.func for decorator in model.__pydantic_decorators__.field_validators.values()]

        def build_validator(name: str, each: Any) -> Any:
            # Each field is validated as the only field of a model, so that its validators can read `info.data`.
            alone: Any = {"type": "model-fields", "fields": {name: {"type": "model-field", "schema": each}}}
            return SchemaValidator({"type": "definitions", "schema": alone, "definitions": shared}, config)

        self._full_validators = {name: build_validator(name, each) for name, each in core.items()}
        self._type_validators = {
            name: build_validator(name, _strip_validators(each, own_validators)) for name, each in core.items()
        }
        self._self_parsing = {name for name, each in core.items() if _parses_before_type(each)}

    def _check(self, name: str, value: Any) -> Any:
        schema = self.fields[name].schema
        # A validator that runs before the type check may accept texts that the parser rejects, so it is tried first.
        if name in self._self_parsing and isinstance(value, str) and value.strip():
            try:
                return self._validate(self._full_validators, name, value.strip())
            except InvalidValue as refusal:
                try:
                    value = self._parser.parse(schema, value)
                except InvalidValue:
                    raise refusal from None
        else:
            value = self._parser.parse(schema, value)
        return self._validate(self._full_validators, name, value)

    def _restore(self, name: str, value: Any) -> Any:
        try:  # check the type only: a past date may have been valid when it was stated
            return self._validate(self._type_validators, name, to_plain_value(value))
        except (ValueError, RecursionError):
            return value

    def _build_whole(self, data: Mapping[str, Any]) -> Any:
        from pydantic import ValidationError

        required = {name: None for name, info in self._model.model_fields.items() if info.is_required()}
        known = {**required, **{name: value for name, value in data.items() if name in self.fields}}
        try:
            return self._model.model_validate(known, by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidValue(explain_validation_error(error, 0)) from None

    def _check_together(self, data: Mapping[str, Any]) -> None:
        checks = [
            each.func
            for each in self._model.__pydantic_decorators__.model_validators.values()
            if each.info.mode == "after" and len(inspect.signature(each.func).parameters) == 1
        ]
        if not checks:
            return
        partial = self._model.model_construct(**{name: value for name, value in data.items() if name in self.fields})
        for check in checks:
            try:
                check(partial)
            except (ValueError, AssertionError) as problem:
                raise InvalidValue(str(problem)) from None
            except (AttributeError, TypeError):
                continue  # it needs a field that is missing

    def _validate(self, validators: Mapping[str, Any], name: str, value: Any) -> Any:
        from pydantic import ValidationError

        # Validate as JSON: strict models also accept dates and enums in it.
        try:
            data, *_ = validators[name].validate_json(json.dumps({name: value}), by_alias=False, by_name=True)
        except ValidationError as error:
            raise InvalidValue(explain_validation_error(error, 1)) from None
        except (KeyError, TypeError, AttributeError):
            if validators is self._type_validators:
                raise
            # The model's validator needs fields that are missing; it runs again when all are known.
            return self._validate(self._type_validators, name, value)
        if isinstance(data[name], float) and not math.isfinite(data[name]):
            raise InvalidValue("is not a finite number")
        return data[name]


def _fields_from_json_schema(source: Mapping[str, Any], place: str) -> tuple[dict[str, GatherField], dict[str, Any]]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        schema = _copy_schema(source)
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = ".".join(map(str, error.absolute_path))
        raise FlowError(
            place, f"gather_schema is not a valid JSON schema: {where and where + ': '}{error.message}."
        ) from None
    except TypeError as error:
        raise FlowError(place, f"gather_schema is not a valid JSON schema: {error}.") from None
    except RecursionError:
        raise FlowError(place, "gather_schema contains itself: use $ref and $defs instead.") from None
    definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    schema = _follow_root_reference(schema, definitions)
    if schema.get("type", "object" if "properties" in schema else None) != "object":
        raise FlowError(place, 'gather_schema must have the form {"type": "object", "properties": {...}}.')
    properties = schema.get("properties", {})
    for name, each in properties.items():
        if not isinstance(name, str) or not name.strip():
            raise FlowError(place, f"a field name of gather_schema must be a non-empty string, got {name!r}.")
        if each is False:
            raise FlowError(place, f"field {name!r} of gather_schema is `false`, so no value fits it.")
    unknown = [name for name in schema.get("required", ()) if name not in properties]
    if unknown:
        raise FlowError(place, f"gather_schema requires {unknown[0]!r}, which is not one of its properties.")
    for part in (properties, definitions):
        _validate_references({"properties": part}, definitions, place)
    required = schema.get("required", list(properties))
    fields = {
        name: GatherField(name, strip_titles({} if each is True else each), name in required and not _is_nullable(each))
        for name, each in properties.items()
    }
    return fields, strip_titles({"$defs": definitions})["$defs"]


def _fields_from_model(model: Any, place: str) -> tuple[dict[str, GatherField], dict[str, Any]]:
    import warnings

    from pydantic import RootModel
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError
    from pydantic.json_schema import PydanticJsonSchemaWarning

    if issubclass(model, RootModel):
        raise FlowError(place, f"gather_schema {model.__name__} is a RootModel, which has no fields to gather.")
    try:
        with warnings.catch_warnings():
            # Pydantic leaves a default that is not JSON out of the schema; no warning is needed.
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
            schema = strip_titles(model.model_json_schema(by_alias=False))
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError) as error:
        problem = str(error).splitlines()[0]
        raise FlowError(place, f"gather_schema {model.__name__} has no JSON schema: {problem}.") from error
    definitions = schema.get("$defs", {})
    properties = _follow_root_reference(schema, definitions).get("properties", {})
    fields = {
        name: GatherField(name, properties.get(name, {}), info.is_required() and not _is_nullable(properties.get(name)))
        for name, info in model.model_fields.items()
    }
    return fields, definitions


def _is_nullable(schema: Any) -> bool:
    """Whether null is valid. Such a field is not required, because the user may not have a value."""
    if not isinstance(schema, Mapping):
        return False
    kinds = schema.get("type")
    return (
        kinds == "null"
        or (isinstance(kinds, list) and "null" in kinds)
        or any(_is_nullable(each) for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ())))
    )


def _field_core_schemas(model: Any) -> tuple[dict[str, Any], Any, list[Any]]:
    """Return the validation of each field without the model's own, the model's config, and the shared definitions."""
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


def _strip_validators(core: Any, validators: Sequence[Any]) -> Any:
    """Return a field's validation without its default and without the given validators."""
    while core["type"] == "default" or (
        core["type"].startswith("function-") and "schema" in core and core["function"]["function"] in validators
    ):
        core = core["schema"]
    return core


def _parses_before_type(core: Any) -> bool:
    while core["type"] in ("default", "function-after"):
        core = core["schema"]
    return core["type"] in ("function-before", "function-wrap", "function-plain")


def _copy_schema(schema: Any) -> Any:
    """Copy a schema into plain containers, with `definitions` references rewritten to `$defs`."""
    if isinstance(schema, Mapping):
        for name in schema:
            if not isinstance(name, str):
                raise TypeError(f"the key {name!r} is not a string")
        copy = {name: _copy_schema(each) for name, each in schema.items()}
        if isinstance(copy.get("$ref"), str):
            copy["$ref"] = copy["$ref"].replace("#/definitions/", REFERENCE_PREFIX)
        return copy
    return [_copy_schema(each) for each in schema] if isinstance(schema, list | tuple) else schema


def _follow_root_reference(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference at the root: pydantic writes recursive models this way."""
    for _ in definitions:
        if "properties" not in schema and isinstance(schema.get("$ref"), str):
            schema = definitions.get(schema["$ref"].removeprefix(REFERENCE_PREFIX), {})
    return schema


def _validate_references(schema: Any, definitions: Mapping[str, Any], place: str) -> None:
    if isinstance(schema, list):
        for each in schema:
            _validate_references(each, definitions, place)
    if not isinstance(schema, dict):
        return
    target = schema.get("$ref")
    if isinstance(target, str) and target.removeprefix(REFERENCE_PREFIX) not in definitions:
        raise FlowError(place, f"gather_schema refers to {target!r}, which is not in its $defs.")
    for key in ("$id", "$anchor", "$dynamicRef"):
        if isinstance(schema.get(key), str):
            raise FlowError(place, f"gather_schema has {key} in a field, which is not supported: use $ref to $defs.")
    for key, each in schema.items():
        if key not in ("const", "enum", "default", "examples"):
            _validate_references(each, definitions, place)
